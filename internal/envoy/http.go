package envoy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/listen"
)

// Configured reports whether a configuration is in force.
func (s *Service) Configured() bool { return s.config.Load() != nil }

// maxJSON bounds a request in JSON, in bytes; such requests are made by hand. weightJSON is how many
// times larger than its text one may become.
const (
	maxJSON    = 64 << 10
	weightJSON = 64
)

// ServeJSON answers a request in JSON: 200 for OK and 429 for OVER_LIMIT, with the answer in
// JSON. A request that is not valid gets 400, one of an unknown caller 401, one that is not
// allowed 403, and one that could not be decided 503.
func (s *Service) ServeJSON(w http.ResponseWriter, r *http.Request) {
	refuse := func(code int, err error) {
		text := status.Convert(s.stats.refused(err)).Message()
		if code < http.StatusInternalServerError {
			text = "Bad Request: " + text
		}
		http.Error(w, text, code)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	if err != nil {
		var long *http.MaxBytesError
		if errors.As(err, &long) {
			refuse(http.StatusRequestEntityTooLarge, invalid("the body has more than 64 KiB"))
			return
		}
		refuse(http.StatusBadRequest, invalid("the body could not be read"))
		return
	}
	room := listen.Hold{Room: &s.decoding, Remote: r.RemoteAddr}
	if room.Add(weightJSON*int64(len(body))) != nil {
		refuse(http.StatusServiceUnavailable, errBusy)
		return
	}
	defer room.Release()
	in := new(rls.RateLimitRequest)
	if err := protojson.Unmarshal(body, in); err != nil {
		refuse(http.StatusBadRequest, invalid("%v", err))
		return
	}
	if err := countParts(in); err != nil {
		refuse(http.StatusBadRequest, err)
		return
	}
	out, err := s.decideFor(r.Context(), in, &asker{
		from: frontend.Address(r.RemoteAddr), shown: overhttp.Credentials(r), header: r.Header.Values, bytes: len(body),
		site: true,
	})
	if frontend.Refused(err) {
		overhttp.Refuse(w, err)
		return
	}
	if err != nil {
		err = statusOf(err)
		text := status.Convert(err).Message()
		switch status.Code(err) {
		case codes.InvalidArgument:
			http.Error(w, "Bad Request: "+text, http.StatusBadRequest)
		default:
			http.Error(w, text, http.StatusServiceUnavailable)
		}
		return
	}
	text, err := protojson.Marshal(out)
	if err != nil {
		http.Error(w, "the answer has no form in JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if out.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // an error means that the client is gone
}

// countParts returns an error for a request with too many parts.
func countParts(in *rls.RateLimitRequest) error {
	if len(in.GetDescriptors()) > maxDescriptors {
		return errDescriptors()
	}
	entries := 0
	for _, d := range in.GetDescriptors() {
		if entries += len(d.GetEntries()); entries > maxEntries {
			return errEntries()
		}
	}
	return nil
}

// ServeConfig answers with the limits in force, one in a line.
func (s *Service) ServeConfig(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c := s.config.Load()
	if c == nil {
		http.Error(w, "no rate limit configuration loaded", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write(s.shown.text(c)) // an error means that the client is gone
}

// shown keeps the text of the configuration that was shown last, which may have many MiB: so
// all clients that ask for it at a time share one.
type shown struct {
	mu   sync.Mutex
	of   *config.Config
	kept []byte // not changed
}

func (s *shown) text(c *config.Config) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != c {
		s.of, s.kept = c, []byte(strings.Join(append(c.Lines(), ""), "\n"))
	}
	return s.kept
}
