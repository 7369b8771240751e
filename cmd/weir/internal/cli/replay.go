package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/cmd/weir/internal/replay"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// The defaults of --max-lines and --max-memory.
const (
	defaultMaxLines  = 10_000_000
	defaultMaxMemory = 4 << 30
)

type replayOptions struct {
	rules    []string
	top      int
	maxLines int64
	memory   bytesFlag
	json     bool
	envoy    replayEnvoyOptions
	attrs    []string
	// attributes are those of attrs.
	attributes map[string]string
}

func (a *app) replayCommand() *cobra.Command {
	o := replayOptions{memory: defaultMaxMemory}
	cmd := &cobra.Command{
		Use:   "replay --rules FILE LOG...",
		Short: "Decide an access log under rules: who would have been limited?",
		Long: `Reads access logs in common or combined format, plain or compressed with gzip
("-" is standard input), and decides every request in the order and at the pace
of the log's own time. Then it prints what each rule and limit allowed and
denied, the keys that were denied most, and the course over time.

A line counts if it starts
    host ident user [17/May/2015:10:05:03 +0000] "METHOD PATH
whatever follows, or if it is an object in JSON with a time, an address, a method
and a path, under the names of Caddy's log, of nginx's variables or of Envoy's
operators: ts, start_time, time_iso8601; remote_addr, downstream_remote_address;
request_method, method; request_uri, uri, path; remote_user, user_id. Other lines
are skipped and counted. The first field is taken
as the client's address (even if it is a name), "-" as no user, and the path is
taken without its query. Of a line longer than 64 KiB the rest is ignored. A
request with a path over 8 KiB, which a node refuses, is decided by a shortened
one, and a note says how many there were.

The requests, the counters and the names of keys are kept in memory. A replay
that has more requests than --max-lines, or would take more memory than
--max-memory, ends with an error that says so, and prints no report.

"keys" is how many distinct keys a rule had. Each has limits of its own: a rule
with as many keys as requests limits nobody.

--rules may be given several times: the files are then compared side by side,
and "newly denied" are the requests that the first file allows.

--envoy-config takes the limits from files of envoyproxy/ratelimit instead.
--envoy-descriptor says what Envoy would send for a request, with {ip}, {user},
{method} and {path} of the log; several are sent together.

On a terminal the report comes in columns, elsewhere as lines of fields with
tabs between them. Exit status: 0 if a report was printed.`,
		Example: `  weir replay --rules rules.yaml /var/log/nginx/access.log*
  zcat access.log.*.gz | weir replay --rules rules.yaml --json -
  weir replay --rules now.yaml --rules stricter.yaml access.log
  weir replay --envoy-config /etc/ratelimit --envoy-descriptor 'remote_address={ip}' access.log`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(o.rules) == 0 && o.envoy.dir == "":
				return usage(cmd, "no rules are named: give --rules FILE")
			case len(args) == 0:
				return usage(cmd, `no log is named: give its file, or "-" for standard input`)
			case o.top < 0:
				return usage(cmd, "--top %d is negative: give 0 or more", o.top)
			case o.maxLines < 1 || o.maxLines > accesslog.MaxTraceLines:
				return usage(cmd, "--max-lines %d is out of range: give 1 to %d", o.maxLines, int64(accesslog.MaxTraceLines))
			}
			if err := o.envoy.validate(cmd, o.rules); err != nil {
				return err
			}
			if len(o.attrs) > 0 && o.envoy.dir != "" {
				return usage(cmd, "--attr is for --rules: descriptors of Envoy have their own values")
			}
			return stdinOnce(cmd, slices.Concat(o.rules, args)...)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := (&requestFlags{attrs: o.attrs}).request(cmd, "")
			if err != nil {
				return err
			}
			o.attributes = r.Attributes
			if o.envoy.dir != "" {
				return a.replayEnvoy(cmd.Context(), o, args)
			}
			return a.replay(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.rules, "rules", nil, "rules `FILE`; several are compared")
	f.IntVar(&o.top, "top", 10, "how many of the most denied keys to print")
	f.Int64Var(&o.maxLines, "max-lines", defaultMaxLines, "refuse logs with more requests than this")
	f.Var(&o.memory, "max-memory", "refuse a replay that takes more memory than `SIZE`, such as 512MiB")
	f.BoolVar(&o.json, "json", false, "print an object for one rules file, an array for several")
	f.StringArrayVar(&o.attrs, "attr", nil, "an attribute of all requests, as `KEY=VALUE`; may be given several times")
	f.StringVar(&o.envoy.dir, "envoy-config", "", "`DIRECTORY` with files of envoyproxy/ratelimit, in place of --rules")
	f.StringArrayVar(&o.envoy.descriptors, "envoy-descriptor", nil,
		"`KEY=VALUE,...` that Envoy would send; may be repeated")
	f.StringVar(&o.envoy.domain, "envoy-domain", "", "`DOMAIN` that Envoy would send (default the only one)")
	f.StringVar(&o.envoy.mode, "envoy-mode", "compat", "`MODE` of charging: compat or atomic")
	return withRulesCompletion(cmd)
}

// withRulesCompletion makes the shell complete --rules with names of rules files.
func withRulesCompletion(cmd *cobra.Command) *cobra.Command {
	// The only possible error is an unknown flag, which tests would detect.
	_ = cmd.MarkFlagFilename("rules", "yaml", "yml", "json")
	return cmd
}

func (a *app) replay(ctx context.Context, o replayOptions, logs []string) error {
	files, err := a.loadRules(o.rules)
	if err != nil {
		return err
	}
	began := a.Now()
	progress := term.NewProgress(a.Err, a.ErrStyle, a.Now)
	trace, skipped, err := a.readLogs(logs, o, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	reading := a.Now().Sub(began)
	reports, room := make([]replay.Report, len(files)), int64(o.memory)-trace.Bytes()
	for i, f := range files {
		began = a.Now()
		r, err := f.replay(ctx, trace, o.attributes, len(files) > 1, room, func(done int) {
			progress.Show("deciding under "+f.name, int64(done), int64(trace.Len()))
		})
		progress.Clear()
		if errors.Is(err, replay.ErrMemory) {
			return fmt.Errorf("%s: %w (%s); allow more with --max-memory, or replay a part of the logs", f.name, err, &o.memory)
		}
		if err != nil {
			return err
		}
		room -= r.Bytes
		reports[i] = replay.Report{Result: r, SkippedLines: skipped + r.Refused, Spent: reading + a.Now().Sub(began)}
	}
	return a.printReplay(reports, o)
}

func (a *app) printReplay(reports []replay.Report, o replayOptions) error {
	for _, r := range reports {
		if r.Shortened > 0 {
			a.note("%s: a node refuses %s, decided here by shortened values; the first: %v", r.RulesFile,
				term.Plural(r.Shortened, "request"), r.FirstLong)
		}
		if r.Refused > 0 {
			a.note("%s: %s could not be decided, counted as skipped; the first: %v", r.RulesFile,
				term.Plural(r.Refused, "request"), r.FirstRefusal)
		}
	}
	switch {
	case o.json:
		return a.printJSON(replay.JSON(reports, o.top))
	case a.OutStyle.Terminal:
		return a.print([]byte(replay.Pretty(reports, o.top, a.OutStyle)))
	}
	return a.print([]byte(replay.Plain(reports, o.top)))
}

// readLogs reads all logs into one trace and returns how many lines were skipped.
func (a *app) readLogs(names []string, o replayOptions, progress *term.Progress) (*accesslog.Trace, int, error) {
	trace := accesslog.NewTrace(int(o.maxLines), int64(o.memory))
	skipped := 0
	for _, name := range names {
		st, err := a.readLog(name, trace, progress)
		progress.Clear()
		switch {
		case errors.Is(err, accesslog.ErrEmpty) && len(names) > 1:
			// A log that was just rotated.
			a.note("log %s is empty", name)
		case errors.Is(err, accesslog.ErrFull):
			return nil, 0, fmt.Errorf("the logs have more than %d requests; allow more with --max-lines, or replay a part of "+
				"them", o.maxLines)
		case errors.Is(err, accesslog.ErrMemory):
			return nil, 0, fmt.Errorf("log %s: the first %d requests take %s of memory; allow more with --max-memory, or "+
				"replay a part of the logs", name, trace.Len(), &o.memory)
		case err != nil:
			return nil, 0, fmt.Errorf("log %s: %w%s", name, err, rulesHint(name))
		case st.Skipped > 0:
			a.note("log %s: %s skipped; the first, line %d: %q", name, term.Plural(st.Skipped, "line"), st.FirstSkippedAt,
				st.FirstSkipped)
		}
		skipped += st.Skipped
	}
	if trace.Len() == 0 {
		return nil, 0, errors.New("all logs are empty; there is nothing to replay")
	}
	return trace, skipped, nil
}

func (a *app) readLog(name string, trace *accesslog.Trace, progress *term.Progress) (accesslog.FileStats, error) {
	src, err := accesslog.Open(name, a.In)
	if err != nil {
		return accesslog.FileStats{}, err
	}
	st, err := trace.Read(src, func() { progress.Show("reading "+name, src.Consumed(), src.Size()) })
	return st, errors.Join(err, src.Close())
}

// rulesHint is a hint for the command line --rules a.yaml b.yaml.
func rulesHint(name string) string {
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		return "; if it is a rules file, give it a --rules of its own"
	}
	return ""
}

// replay replays the trace under the rules file.
func (f rulesFile) replay(ctx context.Context, trace *accesslog.Trace, attributes map[string]string, compare bool,
	room int64, tick func(int)) (*replay.Result, error) {
	run, node, err := newRun(ctx, f, trace)
	if err != nil {
		return nil, err
	}
	run.Compare, run.MaxBytes, run.Tick, run.Attributes = compare, room, tick, attributes
	result, err := run.Do(ctx, trace)
	return result, errors.Join(err, node.Close())
}

// isOf reports whether a decision is of a charge, not of one with another alternative.
func isOf(d *limiter.Decision, c *arith.Charge) bool {
	return !slices.ContainsFunc(d.Limits(), func(l limiter.LimitDecision) bool {
		return l.Key >= c.Len() || c.Key(l.Key).Rule.Name != l.Rule.Name
	})
}

// newRun prepares the replay of a trace on a new node with the clock of the trace. The
// caller closes the node.
func newRun(ctx context.Context, f rulesFile, trace *accesslog.Trace) (*replay.Run, node, error) {
	first, _ := trace.Span()
	now := first.Time()
	n, err := openNode(ctx, f, func() time.Time { return now })
	if err != nil {
		return nil, nil, err
	}
	return &replay.Run{
		RulesFile: f.name, Rules: outline(f.set), Decider: n,
		SetTime: func(t limiter.Tick) { now = t.Time() },
		Keys: func(r *limiter.Request, d *limiter.Decision, c *arith.Charge) (string, error) {
			m, err := f.set.Resolve(r, c)
			for _, other := range f.set.Alternatives(r) {
				if err == nil && isOf(d, c) {
					break
				}
				m, err = other.Resolve(r, c)
			}
			return m.Rule, err
		},
		Held:     func() int64 { return n.Stats().Bytes },
		MaxBytes: math.MaxInt64,
	}, n, nil
}
