package server

import (
	"cmp"
	"context"

	"github.com/weirlimit/weir/cmd/node/internal/tracing"
	"github.com/weirlimit/weir/transport"
)

// TraceConfig is where a node sends traces.
type TraceConfig struct {
	// Endpoint is the collector, as http://host:port or https://host:port.
	Endpoint string
	// Ratio is the part of the requests that is traced if clients do not say, from 0 to 1.
	Ratio float64
}

// openTracer makes the tracer, if the node has one.
func (s *Server) openTracer(ctx context.Context) (err error) {
	c := &s.config
	if c.Trace == nil {
		return nil
	}
	name := ""
	if c.Cluster != nil {
		name = c.Cluster.Name
	}
	s.tracer, err = tracing.Open(ctx, tracing.Config{
		Endpoint: c.Trace.Endpoint, Ratio: c.Trace.Ratio, Name: cmp.Or(name, addrOf(s.http)), Version: c.Version, Log: c.Log,
	})
	return err
}

// forRequests returns the tracer for clients' requests. It is nil, and no interface with a nil
// in it, if there is none.
func (s *Server) forRequests() transport.Tracer {
	if s.tracer == nil {
		return nil
	}
	return s.tracer
}

// closeTracer sends what has been recorded, until ctx ends.
func (s *Server) closeTracer(ctx context.Context) {
	if s.tracer == nil {
		return
	}
	if err := s.tracer.Close(ctx); err != nil {
		s.config.Log.Warn("the last traces could not be sent", "error", err)
	}
}
