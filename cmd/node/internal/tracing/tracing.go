// Package tracing sends spans of checks to a collector of OpenTelemetry, by OTLP over gRPC. Only
// the node program compiles it.
package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/internal/seldom"
	"github.com/weirlimit/weir/limiter/arith"
)

// Bounds of what is recorded. Beyond them spans are dropped; no check waits for any.
const (
	maxQueue   = 4096 // ended spans that wait to be sent
	maxForced  = 100  // traces a second that clients decide on
	sendWithin = 5 * time.Second
)

// Config configures a [Tracer]. Endpoint is required.
type Config struct {
	// Endpoint is the collector, as http://host:port without TLS or https://host:port.
	Endpoint string
	// Ratio is the part of the requests without a traceparent that is traced, from 0 to 1.
	Ratio float64
	// Name is the node's name, Version that of the program.
	Name, Version string
	// Log receives, at most once a minute, why spans could not be sent.
	Log *slog.Logger
}

// CheckEndpoint returns an error if an address is not valid for [Config.Endpoint].
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || u.Path != "" ||
		u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("%q is no collector: give http://HOST:PORT, or https://HOST:PORT for one with TLS", endpoint)
	}
	return nil
}

// Tracer records spans. It implements the tracers of packages transport and cluster, and is safe
// for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Open returns a tracer. It does not wait for the collector. The caller must call Close.
func Open(ctx context.Context, c Config) (*Tracer, error) {
	if err := CheckEndpoint(c.Endpoint); err != nil {
		return nil, err
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(c.Endpoint),
		otlptracegrpc.WithTimeout(sendWithin),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false})) // what waits to be sent again would grow
	if err != nil {
		return nil, fmt.Errorf("traces cannot be sent to %s: %w", c.Endpoint, err)
	}
	otel.SetErrorHandler(&sdkErrors{log: c.Log, endpoint: c.Endpoint})
	p := sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(maxQueue), sdk.WithExportTimeout(sendWithin)),
		sdk.WithSampler(&sampler{ratio: sdk.TraceIDRatioBased(c.Ratio)}),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "weir"), attribute.String("service.instance.id", c.Name),
			attribute.String("service.version", c.Version))),
	)
	return &Tracer{provider: p, tracer: p.Tracer("github.com/weirlimit/weir")}, nil
}

// Close sends the spans that have ended, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Serve implements the Tracer of package transport.
func (t *Tracer) Serve(ctx context.Context, method, parent, state string) (_ context.Context, traceparent string,
	end func(code string)) {
	under := ctx
	if parent != "" {
		under = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
	}
	within, span := t.tracer.Start(under, method, trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() {
		return ctx, "", nil
	}
	c := span.SpanContext()
	return within, fmt.Sprintf("00-%s-%s-01", c.TraceID(), c.SpanID()), func(code string) {
		span.SetAttributes(attribute.String("weir.code", code))
		span.End()
	}
}

// Parent implements the Tracer of package cluster.
func (t *Tracer) Parent(ctx context.Context) *arith.TraceContext {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return nil
	}
	return contextOf(span)
}

// Start implements the Tracer of package cluster. The parent is recorded, so the span is too.
func (t *Tracer) Start(parent *arith.TraceContext, name string) (own *arith.TraceContext, end func()) {
	var c trace.SpanContextConfig
	binary.BigEndian.PutUint64(c.TraceID[:8], parent.TraceHi)
	binary.BigEndian.PutUint64(c.TraceID[8:], parent.TraceLo)
	binary.BigEndian.PutUint64(c.SpanID[:], parent.Span)
	c.TraceFlags = trace.FlagsSampled // and not remote: a member has decided it, see sampler
	_, span := t.tracer.Start(trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(c)), name)
	return contextOf(span), func() { span.End() }
}

func contextOf(span trace.Span) *arith.TraceContext {
	id, at := span.SpanContext().TraceID(), span.SpanContext().SpanID()
	return &arith.TraceContext{
		TraceHi: binary.BigEndian.Uint64(id[:8]), TraceLo: binary.BigEndian.Uint64(id[8:]),
		Span: binary.BigEndian.Uint64(at[:]),
	}
}

// sampler decides which requests are traced: what is below a span of this cluster always, what a
// client asks for up to a bound, what a client excludes never, and of the others a part.
type sampler struct {
	ratio sdk.Sampler

	mu     sync.Mutex
	second int64
	forced int // in that second
}

// ShouldSample implements the Sampler of the SDK.
func (s *sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	if !parent.IsValid() {
		return s.ratio.ShouldSample(p)
	}
	out := sdk.SamplingResult{Decision: sdk.Drop, Tracestate: parent.TraceState()}
	if parent.IsSampled() && (!parent.IsRemote() || s.force(time.Now().Unix())) {
		out.Decision = sdk.RecordAndSample
	}
	return out
}

// Description implements the Sampler of the SDK.
func (s *sampler) Description() string { return "weir" }

// force reports whether one more client may decide that its request is traced in this second.
func (s *sampler) force(second int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.second != second {
		s.second, s.forced = second, 0
	}
	s.forced++
	return s.forced <= maxForced
}

// sdkErrors logs what the SDK reports, once a minute.
type sdkErrors struct {
	log      *slog.Logger
	endpoint string

	logged seldom.Lines
}

// Handle implements the ErrorHandler of OpenTelemetry.
func (c *sdkErrors) Handle(err error) {
	if _, due := c.logged.Due("", time.Now()); due {
		c.log.Warn("traces cannot be sent, and are dropped: is the collector there?", "endpoint", c.endpoint, "error", err)
	}
}
