package app

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/cmd/node/internal/tracing"
)

type traceOptions struct {
	to    string
	ratio float64
}

const defaultTraceRatio = 0.001

func newTraceOptions() traceOptions { return traceOptions{ratio: defaultTraceRatio} }

func (o *traceOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.to, "trace-to", "",
		"send traces by OTLP over gRPC to `URL`, such as http://127.0.0.1:4317 (default nowhere)")
	f.Float64Var(&o.ratio, "trace-ratio", o.ratio, "trace this `PART` of the requests if clients do not say, 0 to 1")
}

func (o *traceOptions) validate(cmd *cobra.Command) error {
	switch {
	case o.to == "" && o.ratio != defaultTraceRatio:
		return usage(cmd, "--trace-ratio is for --trace-to: give it too, such as http://127.0.0.1:4317")
	case !(o.ratio >= 0 && o.ratio <= 1): // NaN too
		return usage(cmd, "--trace-ratio %v is out of range: give 0 to 1", o.ratio)
	case o.to == "":
		return nil
	}
	if err := tracing.CheckEndpoint(o.to); err != nil {
		return usage(cmd, "--trace-to %v", err)
	}
	return nil
}

// config returns the configuration of traces, nil for none.
func (o *traceOptions) config() *server.TraceConfig {
	if o.to == "" {
		return nil
	}
	return &server.TraceConfig{Endpoint: o.to, Ratio: o.ratio}
}
