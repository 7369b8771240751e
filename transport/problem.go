package transport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	fields "github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

// problem is an error in the format of RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func newProblem(status int, detail string) *problem {
	return &problem{"about:blank", http.StatusText(status), status, detail}
}

func problemOf(err error) *problem { return newProblem(statusCodeOf(err), err.Error()) }

// statusCodeOf returns the HTTP status for an error of the decider or of this package.
func statusCodeOf(err error) int {
	switch {
	case errors.Is(err, errMediaType):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, errBodySize):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, frontend.ErrBudget):
		return http.StatusTooManyRequests
	}
	switch overgrpc.Code(err) {
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.FailedPrecondition:
		return http.StatusConflict
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout // it may have been carried out
	case codes.Unimplemented:
		return http.StatusNotFound
	default:
		return http.StatusServiceUnavailable
	}
}

func writeError(w http.ResponseWriter, err error) {
	if errors.Is(err, frontend.ErrUnauthenticated) {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if wait := fields.RetryAfter(err); wait > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(limiter.Seconds(wait), 10))
	}
	writeProblem(w, statusCodeOf(err), err.Error())
	overhttp.Refused(w, err)
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	if seen, ok := w.(*statusWriter); ok {
		seen.why = detail
	}
	write(w, status, "application/problem+json", newProblem(status, detail))
}

func writeJSON(w http.ResponseWriter, v any) { write(w, http.StatusOK, "application/json", v) }

// writeAnswer sends the answer to a message as JSON. The message must not be used any
// more: while the client reads, its room is that of the answer.
func writeAnswer(w http.ResponseWriter, status int, v any, h *listen.Hold) {
	if body := encode(w, v); body != nil {
		h.Answered(cap(body))
		send(w, status, "application/json", body)
	}
}

// write sends a value as JSON.
func write(w http.ResponseWriter, status int, contentType string, v any) {
	if body := encode(w, v); body != nil {
		send(w, status, contentType, body)
	}
}

// encode returns a value as JSON. If that fails, it sends an error and returns nil.
func encode(w http.ResponseWriter, v any) []byte {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // keys are shown unescaped
	if err := e.Encode(v); err != nil {
		// Strings, numbers and booleans can always be encoded.
		http.Error(w, "the answer cannot be written as JSON", http.StatusInternalServerError)
		return nil
	}
	return body.Bytes()
}

// send sends a response. It must not be cached, since an answer holds for one moment.
func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // so that it may be flushed
	w.WriteHeader(status)
	w.Write(body)
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	io.WriteString(w, text+"\n")
}

// readBody reads a JSON body of at most [MaxBodyBytes]. It takes room for the bytes as
// they arrive, and for what decoding JSON of that size needs.
func readBody(w http.ResponseWriter, r *http.Request, h *listen.Hold) ([]byte, error) {
	if r.URL.RawQuery != "" {
		return nil, invalid("parameters in the address of a %s are not read: put them into the body", r.Method)
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	coding := cmp.Or(r.Header.Get("Content-Encoding"), "identity")
	if err != nil || media != "application/json" || !strings.EqualFold(coding, "identity") {
		return nil, errMediaType
	}
	body, err := readAll(w, r, h)
	if err == nil && !utf8.Valid(body) {
		return nil, invalid("the body is not UTF-8, as JSON must be")
	}
	return body, err
}

// readAll reads a body of at most [MaxBodyBytes] to its end and takes room for it as it arrives. Bytes that are
// only announced take none.
func readAll(w http.ResponseWriter, r *http.Request, h *listen.Hold) ([]byte, error) {
	from, body := http.MaxBytesReader(w, r.Body, MaxBodyBytes), make([]byte, 0, 512)
	for {
		if len(body) == cap(body) {
			if err := h.Add(int64(cap(body)) * weightOfByte); err != nil {
				return nil, err
			}
			body = slices.Grow(body, cap(body)) // doubles the capacity
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, h.Add(int64(len(body)) * weightOfJSON)
		}
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return nil, errBodySize
		}
		if err != nil {
			return nil, invalid("the body could not be read to its end: %v", err)
		}
	}
}

// Refuse answers with the reason why the caller may not send the request.
func (w *statusWriter) Refuse(why error) { writeError(w, why) }

// refusedPart notes, for the auditor, that a check of a batch was refused.
func refusedPart(w http.ResponseWriter, err error) {
	if seen, ok := w.(*statusWriter); ok && refusedFor(overgrpc.Code(err)) {
		if seen.refusedParts++; seen.refusedParts == 1 {
			seen.why = frontend.AuditText(err)
		}
	}
}
