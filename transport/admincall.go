package transport

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/limiter"
)

// Methods of gRPC at the administration are requests of HTTP/2 like others: so they have the hosts, identities, audit
// and bounds of that site. A call is one message each way, behind a prefix of five bytes.

const (
	callType    = "application/grpc"
	callPrefix  = 5 // whether it is compressed, and its length
	maxCall     = 16 << 10
	callStatus  = "Grpc-Status"
	callMessage = "Grpc-Message"
)

var (
	errNoCall   = fmt.Errorf("%w: this is a method of gRPC: ask it over HTTP/2", limiter.ErrInvalid)
	errCall     = fmt.Errorf("%w: the call is not one whole message of gRPC", limiter.ErrInvalid)
	errCallSize = fmt.Errorf("%w: the message has more than %d bytes", frontend.ErrBudget, maxCall)
	errSqueezed = fmt.Errorf("%w: the message is compressed: send it as it is", limiter.ErrInvalid)
)

// serveCall serves a method. What is refused before comes here, too, as by.Err.
func serveCall(w http.ResponseWriter, r *http.Request, of AdminRoute, by *AdminCaller) {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), "+")
	if r.ProtoMajor < 2 || kind != callType {
		writeError(w, cmp.Or(by.Err, errNoCall))
		return
	}
	var out proto.Message
	text, err := readCall(r.Body)
	if by.Err != nil {
		err = by.Err
	}
	if err == nil {
		out, err = of.call(text, by)
	}
	var reply []byte
	if err == nil {
		reply, err = proto.MarshalOptions{}.MarshalAppend(make([]byte, callPrefix), out)
	}
	h := w.Header()
	h.Set("Content-Type", callType)
	h.Set("Cache-Control", "no-store")
	h.Set("Trailer", callStatus+", "+callMessage)
	w.WriteHeader(http.StatusOK)
	if err == nil {
		binary.BigEndian.PutUint32(reply[1:], uint32(len(reply)-callPrefix))
		_, _ = w.Write(reply) // what the call has done stands, also if the client is gone
	} else {
		_ = http.NewResponseController(w).Flush() // so that the status is in a trailer
	}
	h.Set(callStatus, strconv.Itoa(int(overgrpc.Code(err))))
	if err == nil {
		return
	}
	h.Set(callMessage, percentEncoded(err.Error()))
	if seen, ok := w.(*statusWriter); ok { // for the audit
		seen.status, seen.why = statusCodeOf(err), err.Error()
	}
	overhttp.Refused(w, err)
}

func readCall(body io.Reader) ([]byte, error) {
	var prefix [callPrefix]byte
	if _, err := io.ReadFull(body, prefix[:]); err != nil {
		return nil, errCall
	}
	n := binary.BigEndian.Uint32(prefix[1:])
	switch {
	case prefix[0] != 0:
		return nil, errSqueezed
	case n > maxCall:
		return nil, errCallSize
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(body, text); err != nil {
		return nil, errCall
	}
	if _, err := io.ReadFull(body, prefix[:1]); !errors.Is(err, io.EOF) {
		return nil, errCall
	}
	return text, nil
}

// percentEncoded writes a text as gRPC has it in a trailer.
func percentEncoded(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
