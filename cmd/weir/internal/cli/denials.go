package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/internal/denials"
)

func (a *app) denialsCommand() *cobra.Command {
	var server adminFlags
	var q struct {
		user, rule, tenant, key, since, until, at string
		n                                         int
		one, json                                 bool
	}
	cmd := &cobra.Command{
		Use:   "denials [--user USER] [--at TIME]",
		Short: "Tell who was refused, when and why",
		Long: `Lists the last denials that the members of a cluster remember, by key: how many, since
when, and some of them with what was asked and what was left. Any member is asked, at
its administration address, and asks the others. It names those that cannot be asked:
what they alone knew is missing. A member remembers since its start, as much as fits
into its --denial-bytes: of each key the last hour with denials.

A time is one of the last 24 hours in UTC, such as 10:32 or 10:32:05, how long ago it
was, such as 10m, or one with a date, such as 2026-01-31T10:32:00Z.

Exit status: 0 done, 1 failed, 2 the node cannot be asked, 3 there was no denial.`,
		Example: `  weir denials
  weir denials --user ada --at 10:32
  weir denials --rule login --since 1h --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case q.n < 1 || q.n > denials.MaxFound:
				return usage(cmd, "-n %d is out of range: give 1 to %d", q.n, denials.MaxFound)
			case q.at != "" && (q.since != "" || q.until != ""):
				return usage(cmd, "--at and --since or --until are both given: --at is the minute before and after a time")
			}
			return commandline.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.adminServer(cmd, &server)
			if err != nil {
				return err
			}
			if q.at != "" {
				at, err := console.TimeOf("--at", q.at, a.Now())
				if err != nil {
					return usage(cmd, "%v", err)
				}
				q.since, q.until = at.Add(-time.Minute).Format(time.RFC3339), at.Add(2*time.Minute).Format(time.RFC3339)
			}
			v := url.Values{"n": {fmt.Sprint(q.n)}}
			for name, text := range map[string]string{"user": q.user, "rule": q.rule, "tenant": q.tenant, "key": q.key,
				"since": q.since, "until": q.until} {
				if text != "" {
					v.Set(name, text)
				}
			}
			if q.one {
				v.Set("one", "true")
			}
			var out console.Denied
			if err := h.do(cmd.Context(), http.MethodGet, "/v1/denials?"+v.Encode(), nil, &out); err != nil {
				return err
			}
			err = a.show(q.json, &out, a.denialsText(&out))
			if err == nil && len(out.Keys) == 0 {
				err = errDenied
			}
			return err
		},
	}
	f := cmd.Flags()
	server.addFlags(f)
	f.StringVar(&q.user, "user", "", "of this `USER`, or address")
	f.StringVar(&q.rule, "rule", "", "by this `RULE`")
	f.StringVar(&q.tenant, "tenant", "", "of this `TENANT`")
	f.StringVar(&q.key, "counter", "", "of the key with this `NAME`")
	f.StringVar(&q.at, "at", "", "in the minute before and after this `TIME`")
	f.StringVar(&q.since, "since", "", "since this `TIME`")
	f.StringVar(&q.until, "until", "", "before this `TIME`")
	f.IntVarP(&q.n, "number", "n", 20, "list `N` keys, those that were denied most")
	f.BoolVar(&q.one, "one", false, "ask only that node")
	f.BoolVar(&q.json, "json", false, "print an object")
	return cmd
}

// shownSamples is how many denials of a key are listed.
const shownSamples = 5

func (a *app) denialsText(out *console.Denied) string {
	var b strings.Builder
	if len(out.Keys) == 0 {
		b.WriteString("no denial is known" + spanText(out.Since, out.Until) + "\n")
	}
	for i := range out.Keys {
		k := &out.Keys[i]
		name := term.Clean(cmp.Or(k.Key, "each request"))
		by := cmp.Or(k.Rule, "no rule")
		if k.Limit != "" {
			by += "/" + k.Limit
		}
		times := term.Plural(int(min(k.Count, 1<<53)), "time")
		fmt.Fprintf(&b, "%s was refused %s by %s", a.OutStyle.Bold(name), times, term.Clean(by))
		if k.Tenant != "" {
			b.WriteString(", tenant " + term.Clean(k.Tenant))
		}
		fmt.Fprintf(&b, ": %s to %s\n", clock(k.First), clock(k.Last))
		from := max(0, len(k.Samples)-shownSamples)
		for j := range k.Samples[from:] {
			s := &k.Samples[from+j]
			b.WriteString("  " + s.Time.UTC().Format("15:04:05") + "  " + term.Clean(s.Sentence()) + "\n")
		}
		if from > 0 {
			fmt.Fprintf(&b, "  and %s before; --json lists all\n", term.Plural(from, "sample"))
		}
	}
	if out.Left > 0 {
		fmt.Fprintf(&b, "%s more; -n lists more\n", term.Plural(out.Left, "key"))
	}
	for _, m := range out.Members {
		if m.Late(out.Since) {
			fmt.Fprintf(&b, "%s remembers only since its start at %s UTC\n", term.Clean(m.Member),
				m.Began.UTC().Format("2006-01-02 15:04:05"))
		}
	}
	for _, m := range out.Missing {
		fmt.Fprintf(&b, "%s is missing, as %s: what it alone knew is not here\n", term.Clean(m.Member), term.Clean(m.Why))
	}
	return b.String()
}

// clock returns a time in UTC, with its date.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func spanText(since, until time.Time) string {
	text := ""
	if !since.IsZero() {
		text += " since " + since.UTC().Format("2006-01-02 15:04:05")
	}
	if !until.IsZero() {
		text += " before " + until.UTC().Format("2006-01-02 15:04:05")
	}
	if text != "" {
		text += " UTC"
	}
	return text
}
