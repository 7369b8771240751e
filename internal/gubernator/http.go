package gubernator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
)

// Routes returns what is served over HTTP.
func (s *Service) Routes() map[string]overhttp.Route {
	return map[string]overhttp.Route{
		"/v1/GetRateLimits": {Post: s.postGet, Action: "check", Over: "gubernator"},
		"/v1/HealthCheck": {Get: func(w http.ResponseWriter, r *http.Request) {
			by, _ := overhttp.Identify(s.front, r) // one who is not identified may ask
			out, err := s.health(&by)
			reply(w, out, err)
		}},
		"/v1/LiveCheck": {Get: func(w http.ResponseWriter, _ *http.Request) {
			out, err := s.live()
			reply(w, out, err)
		}},
	}
}

// maxDepth bounds how deeply JSON may be nested. Messages need four levels; what is not known
// is skipped.
const maxDepth = 32

// postGet answers GetRateLimits in JSON.
func (s *Service) postGet(w http.ResponseWriter, r *http.Request, body []byte) {
	by, err := overhttp.Identify(s.front, r)
	if err != nil {
		overhttp.Refused(w, err) // the server tells the audit
		reply(w, nil, overgrpc.Status(err))
		return
	}
	in := new(pb.GetRateLimitsReq)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: maxDepth}).Unmarshal(body,
		in); err != nil {
		reply(w, nil, status.Errorf(codes.InvalidArgument, "%.300s", err.Error()))
		return
	}
	out, err := s.getRateLimits(r.Context(), &by, in, len(body))
	reply(w, out, err)
}

// problem is an error in JSON.
type problem struct {
	Code    codes.Code `json:"code"`
	Message string     `json:"message"`
	Details []struct{} `json:"details"`
}

// reply answers with a message, or with the error, which is a gRPC status.
func reply(w http.ResponseWriter, m proto.Message, err error) {
	var text []byte
	if err == nil {
		text, err = marshal(m)
	}
	code := http.StatusOK
	if err != nil {
		st := status.Convert(err)
		code = httpStatus(st.Code())
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		if text, err = json.Marshal(problem{st.Code(), st.Message(), []struct{}{}}); err != nil {
			text = nil // numbers and texts can always be encoded
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(code)
	w.Write(text)
}

// marshal returns a message in JSON: with all fields, by their names in the protocol, and
// without blanks, of which the library adds some at random.
func marshal(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return nil, status.Error(codes.Internal, "the answer has no form in JSON: "+err.Error())
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return nil, status.Error(codes.Internal, "the answer has no form in JSON: "+err.Error())
	}
	return out.Bytes(), nil
}

func httpStatus(c codes.Code) int {
	return cmp.Or(map[codes.Code]int{
		codes.InvalidArgument: http.StatusBadRequest, codes.OutOfRange: http.StatusBadRequest,
		codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden,
		codes.ResourceExhausted: http.StatusTooManyRequests, codes.DeadlineExceeded: http.StatusGatewayTimeout,
		codes.Unavailable: http.StatusServiceUnavailable,
	}[c], http.StatusInternalServerError)
}
