package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/internal/counters"
	"github.com/weirlimit/weir/limiter"
)

func (a *app) exportCommand() *cobra.Command {
	var server adminFlags
	var o requestFlags
	var rule, tenant string
	cmd := &cobra.Command{
		Use:   "export [PATH] [--rule RULE]",
		Short: "Write counters as lines of JSON, to be kept or imported",
		Long: `Writes the counters of all members of a cluster, or of one node: each a line with the
rules that can have it, the hash of its key, its limit, what is used of it and until
when. With --rule only those of a rule or quota; with PATH, --user or another part of a
request only those of that request. Reservations and ids are not among them.

Names of keys are hashes under the cluster's secret: import them into nodes that have
the same secret and cluster name.

A node takes it from callers with the permission admin, and without a permissions file
from whom its administration listens to.

Exit status: 0 all is there, 1 a member or a part is missing, 2 the node cannot be asked.`,
		Example: `  weir export > counters.jsonl
  weir export --rule api --user ada`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(cmd, "one path at a time, but %q follows %q", args[1], args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			want := console.Exports{Rule: rule}
			asked := slices.ContainsFunc([]string{"user", "ip", "group", "method", "attr", "tenant"}, cmd.Flags().Changed)
			if asked || len(args) > 0 {
				path := ""
				if len(args) > 0 {
					path = args[0]
				}
				r, err := o.request(cmd, path)
				if err != nil {
					return err
				}
				want.Request = requested(r, tenant)
			}
			return a.export(cmd, &server, &want)
		},
	}
	f := cmd.Flags()
	o.addFlags(f)
	_ = f.MarkHidden("id")
	_ = f.MarkHidden("id-ttl")
	f.StringVar(&rule, "rule", "", "the `RULE` or quota whose counters are wanted (default: all)")
	f.StringVar(&tenant, "tenant", "", "the `TENANT` of the user")
	server.addFlags(f)
	return cmd
}

func requested(r *limiter.Request, tenant string) *console.ExportRequest {
	return &console.ExportRequest{Path: r.Path, Method: r.Method, User: r.User, IP: r.IP, Group: r.Group, Tenant: tenant,
		Attributes: r.Attributes}
}

// export prints the lines of an export as they come.
func (a *app) export(cmd *cobra.Command, server *adminFlags, want *console.Exports) (err error) {
	h, err := a.adminServer(cmd, server)
	if err != nil {
		return err
	}
	body, err := json.Marshal(want)
	if err != nil {
		return err
	}
	resp, err := h.send(cmd.Context(), http.MethodPost, "/v1/export", body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close(), h.Close()) }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
		if detail := detailOf(text); detail != "" {
			return fmt.Errorf("node %s: %s", h.server, detail)
		}
		return h.noNode(resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, counters.MaxLine+1)
	var last []byte
	for lines.Scan() {
		if last != nil {
			if err := a.print(append(last, '\n')); err != nil {
				return err
			}
		}
		last = append(last[:0], lines.Bytes()...)
	}
	var end console.ExportEnd
	if err := lines.Err(); err != nil {
		return h.failed(err)
	}
	if json.Unmarshal(last, &end) != nil || !end.End {
		return fmt.Errorf("node %s: the export is cut short: export again", h.server)
	}
	return incomplete(&end)
}

// incomplete returns an error if counters are missing.
func incomplete(end *console.ExportEnd) error {
	var errs []error
	for _, m := range end.Missing {
		errs = append(errs, fmt.Errorf("the counters of member %s are missing, as %s", term.Clean(m.Member),
			term.Clean(m.Why)))
	}
	if end.Unowned > 0 {
		errs = append(errs, fmt.Errorf("no member in reach decides about %s now: their counters are missing",
			term.Plural(end.Unowned, "partition")))
	}
	return errors.Join(errs...)
}

func (a *app) importCommand() *cobra.Command {
	var server adminFlags
	var replace, dry bool
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Add counters that were exported, or replace those that are there",
		Long: `Reads lines that weir export wrote, and adds each counter where it is decided about. One
that is there already then denies whatever either of both denies, so that nothing is
granted again; with --replace it becomes what the line says. What has ended since is
left out. --dry-run says what would be done. A line that cannot be used is told by its
number and costs no other one.

A node takes it from callers with the permissions admin and reset, and without a
permissions file from its own machine. All members that have no permissions file must
have been started with --allow-reset: while one refuses, nothing is imported.

Exit status: 0 all lines were used, 1 some were not, 2 the node cannot be asked.`,
		Example: `  weir import counters.jsonl --dry-run
  weir import counters.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "give one file that weir export wrote, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from := a.In
			if args[0] != accesslog.Stdin {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close() //nolint:errcheck // it was only read
				from = f
			}
			return a.importLines(cmd, &server, from, replace, dry)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&replace, "replace", false, "replace counters that are there, also by lower ones")
	f.BoolVar(&dry, "dry-run", false, "change nothing, and say what would be done")
	server.addFlags(f)
	return cmd
}

// importLines imports lines in batches.
func (a *app) importLines(cmd *cobra.Command, server *adminFlags, from io.Reader, replace, dry bool) error {
	h, err := a.adminServer(cmd, server)
	if err != nil {
		return err
	}
	did, bad := map[string]int{}, 0
	refuse := func(number int, why string) {
		bad++
		a.say("weir: line %d: %s\n", number, term.Clean(why))
	}
	batch, numbers, size := console.Import{Replace: replace, Dry: dry}, []int(nil), 0
	send := func() error {
		if len(batch.Lines) == 0 {
			return nil
		}
		body, err := json.Marshal(batch)
		if err != nil {
			return err
		}
		var out console.ImportResult
		if err := h.do(cmd.Context(), http.MethodPost, "/v1/import", body, &out); err != nil {
			return fmt.Errorf("%w (lines from %d on were not imported)", err, numbers[0])
		}
		for i, l := range out.Lines[:min(len(out.Lines), len(numbers))] {
			if did[l.Did]++; l.Did == "refused" {
				refuse(numbers[i], l.Why)
			}
		}
		batch.Lines, numbers, size = batch.Lines[:0], numbers[:0], 0
		return nil
	}
	lines := bufio.NewReaderSize(from, counters.MaxLine+2)
	var end error
	for number := 1; end == nil; number++ {
		var text []byte
		var long bool
		text, long, end = nextLine(lines)
		switch {
		case long:
			refuse(number, fmt.Sprintf("it has more than %d bytes", counters.MaxLine))
			continue
		case len(text) == 0:
			continue
		case !json.Valid(text):
			refuse(number, "it is not JSON")
			continue
		}
		if size+len(text) > console.MaxImport || len(batch.Lines) == console.MaxImported {
			if err := send(); err != nil {
				return err
			}
		}
		batch.Lines, numbers, size = append(batch.Lines, bytes.Clone(text)), append(numbers, number), size+len(text)
	}
	if errors.Is(end, io.EOF) {
		end = nil
	}
	if err := errors.Join(send(), end); err != nil {
		return err
	}
	text := fmt.Sprintf("%d added, %d merged, %d replaced, %d ended since, %d refused\n", did["added"], did["merged"],
		did["replaced"], did["over"], bad)
	if dry {
		text = "dry run: " + text
	}
	if err := a.print([]byte(text)); err != nil || bad == 0 {
		return err
	}
	return fmt.Errorf("%s could not be used", term.Plural(bad, "line"))
}

// nextLine returns the next line, valid until the next call, or reads over one that is longer than the buffer of r. The
// error is that of r, and the end.
func nextLine(r *bufio.Reader) (text []byte, long bool, err error) {
	for text, err = r.ReadSlice('\n'); errors.Is(err, bufio.ErrBufferFull); _, err = r.ReadSlice('\n') {
		long = true
	}
	return bytes.TrimSpace(text), long, err
}
