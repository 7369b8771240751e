package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/waiting"
)

// TypeURL is the type of the resources that are asked for.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	maxMessage   = 8 << 20
	maxResources = 10_000
	// maxDetail bounds a reason that is sent or logged, maxName the version and the nonce of a
	// response, in bytes. The server gets both of these back with each message.
	maxDetail = 1024
	maxName   = 4096
	// firstWait and maxWait are the mean waits before a stream is opened again: the first, and
	// the longest, after doubling. Each is varied by half of it.
	firstWait = 500 * time.Millisecond
	maxWait   = 30 * time.Second
	// pause is the wait before a response is answered. With it the client waits idle times as
	// long as it took to apply the response, so that a server which sends without end does not
	// keep this side busy, nor its log.
	pause = 100 * time.Millisecond
	idle  = 4
)

// Config configures a [Client]. Addr, Apply and Log are required.
type Config struct {
	// Addr is the management server, as host:port.
	Addr string
	// NodeID is the id that the server knows this node by; default "default".
	NodeID string
	// Certs are this side's certificate and the server's authorities, nil for no TLS.
	// ServerName is the name in the server's certificate; default the host of Addr.
	Certs      *certs.Store
	ServerName string
	// Apply puts the resources of a response into force, all of them or none. It is called
	// by one goroutine. Its error is the reason that the server is told.
	Apply func(resources [][]byte) error
	// Log receives what becomes of the stream and of configurations.
	Log *slog.Logger
}

// Client follows the configuration of one management server.
type Client struct {
	config  Config
	conn    *grpc.ClientConn
	version string // in force, "" if none is
}

// New returns a client. Nothing is sent before [Client.Run].
func New(c Config) (*Client, error) {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return nil, fmt.Errorf("the address %q of the management server is not valid: give HOST:PORT", c.Addr)
	}
	secure := insecure.NewCredentials()
	if c.Certs != nil {
		secure = credentials.NewTLS(c.Certs.Client(cmp.Or(c.ServerName, host), nil))
	}
	conn, err := grpc.NewClient("dns:///"+c.Addr, grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage),
			grpc.ForceCodecV2(codec{encoding.GetCodecV2(proto.Name)})),
		grpc.WithDisableServiceConfig(), // a record of DNS would say how calls are made
		// A server by default closes connections whose client pings more often.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}))
	if err != nil {
		return nil, fmt.Errorf("connecting to the management server %s: %w", c.Addr, err)
	}
	c.NodeID = cmp.Or(c.NodeID, "default")
	return &Client{config: c, conn: conn}, nil
}

// Run follows the server until the context ends. What is in force stays while the server
// cannot be reached. Call it once.
func (c *Client) Run(ctx context.Context) {
	defer func() { _ = c.conn.Close() }() // fails only if it is closed already
	for wait := firstWait; ; {
		got, err := c.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if got {
			wait = firstWait
		}
		next := wait/2 + rand.N(wait)
		c.config.Log.Warn("the management server does not answer; the configuration stays in force",
			"server", c.config.Addr, "error", shorten(err.Error()), "version", c.version, "again_in", next)
		if waiting.Sleep(ctx, next) != nil {
			return
		}
		wait = min(2*wait, maxWait)
	}
}

// stream asks and answers until the stream ends. got reports whether the server has sent
// anything.
func (c *Client) stream(ctx context.Context) (got bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	for say := c.request(); ; {
		sent := s.Send(say)
		r, err := s.Recv() // it knows why Send failed
		switch {
		case err != nil:
			return got, err
		case sent != nil:
			return got, sent
		case len(r.GetVersionInfo()) > maxName || len(r.GetNonce()) > maxName:
			return got, fmt.Errorf("the version or the nonce of a response has more than %d bytes", maxName)
		}
		got = true
		say = c.answer(ctx, r)
	}
}

func (c *Client) request() *discovery.DiscoveryRequest {
	return &discovery.DiscoveryRequest{TypeUrl: TypeURL, VersionInfo: c.version, Node: &core.Node{Id: c.config.NodeID}}
}

// answer applies a response, and returns the message that acknowledges or refuses it.
func (c *Client) answer(ctx context.Context, r *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	begin := time.Now()
	err := c.apply(r)
	if err == nil {
		c.version = r.GetVersionInfo()
	}
	out := c.request()
	out.ResponseNonce = r.GetNonce()
	if err != nil {
		c.config.Log.Error("a configuration of the management server was refused; the old one stays in force",
			"server", c.config.Addr, "version", r.GetVersionInfo(), "error", shorten(err.Error()))
		out.ErrorDetail = &rpc.Status{Code: int32(codes.InvalidArgument), Message: shorten(err.Error())}
	} else {
		c.config.Log.Info("a configuration of the management server is in force",
			"server", c.config.Addr, "version", c.version, "resources", len(r.GetResources()))
	}
	_ = waiting.Sleep(ctx, pause+idle*time.Since(begin))
	return out
}

func (c *Client) apply(r *discovery.DiscoveryResponse) error {
	if r.GetTypeUrl() != TypeURL {
		return fmt.Errorf("the response has the type %q, not %q", shorten(r.GetTypeUrl()), TypeURL)
	}
	resources := make([][]byte, 0, len(r.GetResources()))
	for _, x := range r.GetResources() {
		if x.GetTypeUrl() != TypeURL {
			return errors.New("a resource has the type " + shorten(x.GetTypeUrl()))
		}
		resources = append(resources, x.GetValue())
	}
	return c.config.Apply(resources)
}

// codec is gRPC's codec for messages of protocol buffers. It counts the resources of a response
// before it makes any: an empty one takes two bytes on the wire and many times that in memory.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	const resourcesField = 2
	n := 0
	for rest := data.Materialize(); len(rest) > 0; {
		id, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return fmt.Errorf("the response is not valid: %w", protowire.ParseError(size))
		}
		if id == resourcesField {
			if n++; n > maxResources {
				return fmt.Errorf("the response has more than %d resources", maxResources)
			}
		}
		rest = rest[size:]
	}
	return c.CodecV2.Unmarshal(data, into)
}

// shorten bounds a text that is sent or logged. Only valid UTF-8 can be sent.
func shorten(text string) string {
	if len(text) > maxDetail {
		text = text[:maxDetail]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
