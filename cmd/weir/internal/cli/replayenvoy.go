package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/files"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// replayEnvoyOptions are the flags of replay for files of Envoy's rate limit service.
type replayEnvoyOptions struct {
	dir, domain, mode string
	descriptors       []string
	parsed            []template
}

// template makes a descriptor of a request in a log.
type template []config.Entry

// placeholders returns the parts of a request that stand for values of descriptors.
func placeholders() []string { return []string{"{ip}", "{user}", "{method}", "{path}"} }

// validate checks the flags, and reads the descriptors.
func (o *replayEnvoyOptions) validate(cmd *cobra.Command, rules []string) error {
	switch {
	case o.dir == "" && (o.domain != "" || len(o.descriptors) > 0 || o.mode != "compat"):
		return usage(cmd, "--envoy-domain, --envoy-descriptor and --envoy-mode are for --envoy-config: give it too")
	case o.dir == "":
		return nil
	case len(rules) > 0:
		return usage(cmd, "the limits come from --rules or from --envoy-config: give one of them")
	case len(o.descriptors) == 0:
		return usage(cmd, `--envoy-config needs the descriptors that Envoy would send: give --envoy-descriptor, such as `+
			`"remote_address={ip}"`)
	case o.mode != "compat" && o.mode != "atomic":
		return usage(cmd, "--envoy-mode %q is not valid: give compat or atomic", o.mode)
	}
	for _, text := range o.descriptors {
		t, err := parseTemplate(text)
		if err != nil {
			return usage(cmd, "--envoy-descriptor %q is not valid: %w", text, err)
		}
		o.parsed = append(o.parsed, t)
	}
	return nil
}

// parseTemplate reads KEY=VALUE,KEY=VALUE.
func parseTemplate(text string) (t template, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" {
			return nil, errors.New("give KEY=VALUE, several with commas")
		}
		if strings.HasPrefix(value, "{") && !slices.Contains(placeholders(), value) {
			return nil, fmt.Errorf("a request of a log has no %s: give one of %s", value, strings.Join(placeholders(), ", "))
		}
		t = append(t, config.Entry{Key: key, Value: value})
	}
	return t, nil
}

// fill returns the descriptor of a request. ok is false if the request lacks a part: Envoy then
// sends no such descriptor.
func (t template) fill(r *limiter.Request) (out []config.Entry, ok bool) {
	for _, e := range t {
		switch e.Value {
		case "{ip}":
			e.Value, ok = r.IP, r.IP != ""
		case "{user}":
			e.Value, ok = r.User, r.User != ""
		case "{method}":
			e.Value, ok = r.Method, r.Method != ""
		case "{path}":
			e.Value, ok = r.Path, r.Path != ""
		default:
			ok = true
		}
		if !ok {
			return nil, false
		}
		out = append(out, e)
	}
	return out, true
}

// envoyReport is what a replay under files of Envoy's service found.
type envoyReport struct {
	Requests      int64             `json:"requests"`
	Allowed       int64             `json:"allowed"`
	Denied        int64             `json:"denied"`
	NoDescriptors int64             `json:"no_descriptors"`
	SkippedLines  int               `json:"skipped_lines"`
	First         time.Time         `json:"first"`
	Last          time.Time         `json:"last"`
	Limits        []envoyLimitCount `json:"limits"`
}

// envoyLimitCount is what a limit had, by its first two levels.
type envoyLimitCount struct {
	Limit string `json:"limit"`
	Hits  uint64 `json:"hits"`
	Over  uint64 `json:"over"`
}

// replayEnvoy decides logs under the files of Envoy's rate limit service.
func (a *app) replayEnvoy(ctx context.Context, o replayOptions, logs []string) error {
	c, domain, err := o.envoy.load()
	if err != nil {
		return err
	}
	progress := term.NewProgress(a.Err, a.ErrStyle, a.Now)
	trace, skipped, err := a.readLogs(logs, o, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	first, last := trace.Span()
	now := first.Time()
	clock := func() time.Time { return now }
	// see openNode
	node, err := weir.Open(ctx, weir.Config{Rules: []byte("version: 1\nrules: []\n"), Now: clock,
		Secret: []byte("a trial")})
	if err != nil {
		return err
	}
	options := envoy.Options{Config: frontend.Config{Decider: node}, Now: clock}
	options.Algorithm, _ = envoy.AlgorithmOf("fixed_window") // it is one
	if o.envoy.mode == "atomic" {
		options.Mode = envoy.Atomic
	}
	service, err := envoy.NewService(options)
	if err == nil {
		err = service.SetConfig(c)
	}
	out := envoyReport{First: first.Time().UTC(), Last: last.Time().UTC(), SkippedLines: skipped}
	if err == nil {
		err = out.decide(ctx, service, domain, o.envoy.parsed, trace, func(t limiter.Tick) { now = t.Time() })
	}
	if err = errors.Join(err, node.Close()); err != nil {
		return err
	}
	for _, l := range service.Stats().Limits {
		name := strings.Join(slices.DeleteFunc([]string{l.Domain, l.Key1, l.Key2}, func(s string) bool {
			return s == ""
		}), ".")
		out.Limits = append(out.Limits, envoyLimitCount{name, l.Total, l.Over})
	}
	slices.SortFunc(out.Limits, func(a, b envoyLimitCount) int { return strings.Compare(a.Limit, b.Limit) })
	return a.show(o.json, out, out.text())
}

// load reads the files, and finds the domain.
func (o *replayEnvoyOptions) load() (*config.Config, string, error) {
	found, err := files.Read(o.dir, false)
	if err != nil {
		return nil, "", err
	}
	c, err := config.Parse(found, config.Options{MergeDomains: true})
	if err != nil {
		return nil, "", fmt.Errorf("error loading rate limit configs: %w", err)
	}
	names := c.DomainNames()
	switch {
	case o.domain == "" && len(names) == 1:
		return c, names[0], nil
	case o.domain == "":
		return nil, "", fmt.Errorf("the files have the domains %s: say which with --envoy-domain", strings.Join(names, ", "))
	case !c.Has(o.domain):
		return nil, "", fmt.Errorf("no file has the domain %q: there are %s", o.domain, strings.Join(names, ", "))
	}
	return c, o.domain, nil
}

// decide decides the requests of a trace, and counts them.
func (out *envoyReport) decide(ctx context.Context, s *envoy.Service, domain string, templates []template,
	trace *accesslog.Trace, setTime func(limiter.Tick)) error {
	var r limiter.Request
	for cursor := trace.Cursor(); ; {
		at, ok := cursor.Next(&r)
		if !ok {
			return nil
		}
		setTime(at)
		out.Requests++
		var descriptors [][]config.Entry
		for _, t := range templates {
			if d, ok := t.fill(&r); ok {
				descriptors = append(descriptors, d)
			}
		}
		if len(descriptors) == 0 {
			out.NoDescriptors++
			out.Allowed++
			continue
		}
		denied, err := s.Decide(ctx, domain, descriptors)
		switch {
		case err != nil:
			return fmt.Errorf("deciding request %d of %d: %w", out.Requests, trace.Len(), err)
		case denied:
			out.Denied++
		default:
			out.Allowed++
		}
	}
}

// text returns the report as lines of fields with tabs between them.
func (out *envoyReport) text() string {
	var b strings.Builder
	line := func(fields ...any) {
		for i, f := range fields {
			if i > 0 {
				b.WriteByte('\t')
			}
			fmt.Fprint(&b, f)
		}
		b.WriteByte('\n')
	}
	line("requests", out.Requests)
	line("allowed", out.Allowed)
	line("denied", out.Denied)
	line("no_descriptors", out.NoDescriptors)
	line("skipped_lines", out.SkippedLines)
	line("first", out.First.Format(time.RFC3339))
	line("last", out.Last.Format(time.RFC3339))
	for _, l := range out.Limits {
		line("limit", l.Limit, "hits", l.Hits, "over", l.Over)
	}
	return b.String()
}
