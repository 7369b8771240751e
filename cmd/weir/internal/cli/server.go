package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/dialing"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// askTimeout bounds the wait for one answer of a node.
const askTimeout = 5 * time.Second

// maxAnswerBytes bounds an answer over HTTP: the largest have 256 limits.
const maxAnswerBytes = 4 << 20

// unreachableError marks an error as one of a node that cannot be reached.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

func unreachable(server, format string, args ...any) error {
	return unreachableError{fmt.Errorf("node %s cannot be asked: %w", server, fmt.Errorf(format, args...))}
}

// remote is a node that is asked over the network.
type remote interface {
	ask(ctx context.Context, r *limiter.Request) (limiter.Answer, error)
	explain(ctx context.Context, r *limiter.Request) (*limiter.Explanation, error)
	amend(ctx context.Context, am amendment) (amended, error)
	io.Closer
}

// checkServerFlags returns an error for an invalid combination of flags of a check with
// --server.
func (o *checkOptions) checkServerFlags(cmd *cobra.Command) error {
	switch {
	case o.rules != "":
		return usage(cmd, "--rules and --server are both given, but either a file decides or a node does")
	case o.at != "":
		return usage(cmd, "--at is for --rules: a node decides by its own clock")
	case o.tenant != "" && !strings.Contains(o.server, "://"):
		return usage(cmd, "--tenant is asked over HTTP: give --server http://HOST:PORT or https://HOST:PORT")
	}
	return nil
}

// remoteAt returns the node at an address, which is shown some credentials.
func (a *app) remoteAt(cmd *cobra.Command, server string, shown *credentials) (remote, error) {
	opened, err := a.open(cmd, *shown, server)
	if err != nil {
		return nil, err
	}
	return newRemote(cmd, server, opened)
}

// newRemote returns the node at host:port (gRPC) or http://host:port.
func newRemote(cmd *cobra.Command, server string, shown *dialing.Credentials) (remote, error) {
	if scheme, _, ok := strings.Cut(server, "://"); ok {
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || scheme != "http" && scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
			return nil, usage(cmd, "--server %q is no address: give HOST:PORT for gRPC or http://HOST:PORT", server)
		}
		return newHTTPRemote(server, u, shown), nil
	}
	if !isHostPort(server) {
		return nil, usage(cmd, "--server %q is no address: give HOST:PORT for gRPC or http://HOST:PORT", server)
	}
	return newGRPCRemote(server, shown)
}

// isHostPort reports whether an address is HOST:PORT, with a number or a name as port.
func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && host != "" && port != "" && !strings.Contains(port, "/")
}

// checkServer asks a node.
func (a *app) checkServer(cmd *cobra.Command, o checkOptions, r *limiter.Request) error {
	node, err := a.remoteAt(cmd, o.server, &o.shown)
	if err != nil {
		return err
	}
	return a.repeat(o, node, func() (checked, error) {
		c := checked{at: a.Now()}
		err := c.askWithin(cmd.Context(), node, r, o.explain)
		return c, err
	})
}

// askWithin asks a node, first for an explanation if explain is set.
func (c *checked) askWithin(ctx context.Context, node remote, r *limiter.Request, explain bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if explain {
		if c.explanation, err = node.explain(ctx, r); err != nil {
			return err
		}
	}
	if c.answer, err = node.ask(ctx, r); err == nil && explain {
		c.explanation.Answer = c.answer
	}
	return err
}

// silent returns the error for a node that does not support Explain.
func silent(server string) error {
	return fmt.Errorf("node %s does not explain its decisions: it runs an older version; leave out --explain, or give "+
		"its file with --rules instead of --server", server)
}

// grpcRemote is a node asked over gRPC.
type grpcRemote struct {
	server string
	secure bool // over TLS
	conn   *grpc.ClientConn
	dialed *atomic.Pointer[net.OpError] // why the last connection failed, nil if it did not
}

func newGRPCRemote(server string, shown *dialing.Credentials) (*grpcRemote, error) {
	g := &grpcRemote{server: server, secure: shown.Secure(), dialed: new(atomic.Pointer[net.OpError])}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		op := (*net.OpError)(nil)
		errors.As(err, &op)
		g.dialed.Store(op)
		return conn, err
	}
	options, err := shown.Dial(server)
	if err != nil {
		return nil, unreachable(server, "%w", err)
	}
	g.conn, err = grpc.NewClient("passthrough:///"+server, append(options, grpc.WithContextDialer(dial))...)
	if err != nil {
		return nil, unreachable(server, "%w", err)
	}
	return g, nil
}

// Close ends the connection.
func (g *grpcRemote) Close() error { return g.conn.Close() }

func (g *grpcRemote) ask(ctx context.Context, r *limiter.Request) (limiter.Answer, error) {
	m, err := weirv1.NewLimiterClient(g.conn).Check(ctx, weirwire.NewCheckRequest(r, false))
	if err != nil {
		return limiter.Answer{}, g.failed(ctx, err)
	}
	return weirwire.AnswerOf(m), nil
}

func (g *grpcRemote) explain(ctx context.Context, r *limiter.Request) (*limiter.Explanation, error) {
	m, err := weirv1.NewLimiterClient(g.conn).Explain(ctx, weirwire.NewCheckRequest(r, false))
	if s := status.Convert(err); s.Code() == codes.Unimplemented && strings.Contains(s.Message(), "unknown method") {
		return nil, silent(g.server)
	}
	if err != nil {
		return nil, g.failed(ctx, err)
	}
	return weirwire.ExplanationOf(m), nil
}

func (g *grpcRemote) failed(ctx context.Context, err error) error {
	op := g.dialed.Load()
	// A node may return this code, too, for other nodes that it has asked.
	deadline, _ := ctx.Deadline()
	late := !time.Now().Before(deadline)
	switch s := status.Convert(err); {
	case op != nil:
		return unreachable(g.server, "%w; is it running there? (node serve)", op.Err)
	case s.Code() == codes.DeadlineExceeded && late:
		return unreachable(g.server, "there was no answer within %v", askTimeout)
	case s.Code() == codes.Unimplemented, s.Code() == codes.Unavailable && strings.Contains(s.Message(), "HTTP/1"):
		return unreachable(g.server, "what is there does not speak its gRPC; if it speaks HTTP, give --server http://%s",
			g.server)
	case s.Code() == codes.Unavailable && strings.Contains(s.Message(), "no application protocol"):
		return unreachable(g.server, "what is there does not speak its gRPC; if it speaks HTTP, give --server https://%s",
			g.server)
	case s.Code() == codes.Unavailable && g.secure && refusesCertificate(s.Message()):
		return unreachable(g.server, "what is there ends the connection after the handshake, as without a certificate that "+
			"it believes: give --cert and --key; its log says why")
	case s.Code() == codes.Unavailable && strings.Contains(s.Message(), "reading server preface"):
		return unreachable(g.server,
			"what is there ends the connection at once; if it has TLS, give --ca FILE with its authority")
	case s.Code() == codes.Unavailable && strings.Contains(s.Message(), notTLS):
		return unreachable(g.server, "what is there does not speak TLS; leave out --tls, --ca and --cert")
	case s.Code() == codes.Unavailable, s.Code() == codes.DeadlineExceeded:
		return unreachable(g.server, "%s", s.Message())
	default:
		return fmt.Errorf("node %s: %s", g.server, s.Message())
	}
}

// refusesCertificate reports whether a text is that of a connection over TLS that was ended at its beginning. A server
// says why after it has ended the handshake for its client, which may learn that, or only of the end.
func refusesCertificate(text string) bool {
	return strings.Contains(text, "reading server preface") || strings.Contains(text, "broken pipe") ||
		strings.Contains(text, "connection reset by peer") ||
		strings.Contains(text, "remote error: tls: ") && strings.Contains(text, "certificate")
}

// Texts by which it is seen that only one side has TLS.
const (
	notTLS  = "first record does not look like a TLS handshake"
	needTLS = "Client sent an HTTP request to an HTTPS server"
)

type httpRemote struct {
	server string
	url    string // without a path of the API
	admin  bool   // its administration is asked
	shown  *dialing.Credentials
	client *http.Client
}

func newHTTPRemote(server string, u *url.URL, shown *dialing.Credentials) *httpRemote {
	return &httpRemote{server: server, url: strings.TrimRight(u.String(), "/"), shown: shown, client: &http.Client{
		Transport:     shown.HTTP(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // no node redirects
	}}
}

// Close ends the connection.
func (h *httpRemote) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

func (h *httpRemote) ask(ctx context.Context, r *limiter.Request) (a limiter.Answer, err error) {
	_, err = h.post(ctx, "/v1/check", question(r), func(body []byte) bool {
		return json.Unmarshal(body, &a) == nil && a.Source != ""
	})
	return a, err
}

func (h *httpRemote) explain(ctx context.Context, r *limiter.Request) (*limiter.Explanation, error) {
	e := new(limiter.Explanation)
	status, err := h.post(ctx, "/v1/explain", question(r), func(body []byte) bool {
		return json.Unmarshal(body, e) == nil && e.Answer.Source != ""
	})
	// The administration of a node names the address for checks.
	if err != nil && status == http.StatusNotFound && strings.Contains(err.Error(), "there is nothing at") &&
		!strings.Contains(err.Error(), "--http-addr") {
		return nil, silent(h.server)
	}
	return e, err
}

// post sends the fields of a request. It returns the status of the response, 0 if there was none.
// read parses the body, and reports whether it is a valid answer.
func (h *httpRemote) post(ctx context.Context, path string, fields map[string]any,
	read func(body []byte) bool) (code int, err error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return 0, fmt.Errorf("the request cannot be written: %w", err)
	}
	resp, err := h.send(ctx, http.MethodPost, path, body)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return resp.StatusCode, h.failed(err)
	}
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind {
	case "application/json":
		if read(answer) {
			return resp.StatusCode, nil
		}
	case "application/problem+json":
		switch detail := detailOf(answer); {
		case detail == "":
		case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusGatewayTimeout:
			return resp.StatusCode, unreachable(h.server, "%s", detail)
		default:
			return resp.StatusCode, fmt.Errorf("node %s: %s", h.server, detail)
		}
	}
	return resp.StatusCode, h.noNode(resp.Status, answer)
}

// send sends a request, whose body is JSON unless it is nil.
func (h *httpRemote) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, unreachable(h.server, "%w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, h.failed(err)
	}
	return resp, nil
}

// detailOf returns the detail of a problem (RFC 9457), or "" if it is not a problem.
func detailOf(body []byte) string {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &problem) != nil {
		return ""
	}
	return problem.Detail
}

// noNode returns the error for an answer that is none of a node.
func (h *httpRemote) noNode(status string, body []byte) error {
	if bytes.Contains(body, []byte(needTLS)) {
		return unreachable(h.server, "it has TLS; give --ca FILE with its authority, or --tls if the system has it")
	}
	return unreachable(h.server, "what answers there, with %s, is not a node", status)
}

func (h *httpRemote) failed(err error) error {
	op := (*net.OpError)(nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return unreachable(h.server, "there was no answer within %v", askTimeout)
	case errors.As(err, &op) && op.Op == "dial" && h.admin:
		return unreachable(h.server, "%w; is a node running there with --admin-addr %s? (node serve)", op.Err,
			strings.TrimPrefix(strings.TrimPrefix(h.server, "http://"), "https://"))
	case errors.As(err, &op) && op.Op == "dial":
		return unreachable(h.server, "%w; is it running there? (node serve)", op.Err)
	}
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	// A gRPC server writes first, possibly before the library has sent the request.
	switch text := err.Error(); {
	case strings.Contains(text, "server gave HTTP response to HTTPS client"), strings.Contains(text, notTLS):
		return unreachable(h.server, "what is there does not speak TLS; give --server http://%s",
			strings.TrimPrefix(h.server, "https://"))
	case !strings.Contains(text, "malformed HTTP") && !strings.Contains(text, "readLoopPeekFail"):
	case h.admin:
		return unreachable(h.server,
			"what is there does not speak HTTP; give the address of the node's administration, its --admin-addr")
	default:
		return unreachable(h.server, "what is there does not speak HTTP; if it speaks gRPC, give its address without http://")
	}
	return unreachable(h.server, "%w", err)
}

// question returns a request in the form of its JSON.
func question(r *limiter.Request) map[string]any {
	q := map[string]any{"path": r.Path, "method": r.Method, "user": r.User, "ip": r.IP, "group": r.Group}
	if len(r.Attributes) > 0 {
		q["attributes"] = r.Attributes
	}
	if n, err := r.Cost.Value(0); r.Cost.Given() && err == nil { // the flag has checked its range
		q["cost"] = n
	}
	if r.Tenant != "" {
		q["tenant"], q["peek"] = r.Tenant, true // a check would count for the caller's own
	}
	if r.ID != "" {
		q["id"] = r.ID
	}
	if r.IDTTL != 0 {
		q["id_ttl_ms"] = r.IDTTL.Milliseconds()
	}
	if r.Hold != 0 {
		q["hold_ms"] = r.Hold.Milliseconds()
	}
	return q
}
