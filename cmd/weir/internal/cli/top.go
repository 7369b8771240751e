package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/transport"
)

func (a *app) topCommand() *cobra.Command {
	var server adminFlags
	var n int
	var asJSON, one bool
	cmd := &cobra.Command{
		Use:   "top [--server ADDRESS]",
		Short: "List the keys that are checked most, and denied most",
		Long: `Lists the keys that a node and the other members of its cluster checked most, and
denied most. A member counts for its lists from when it got a key's partition, at its
start or later: what another owner counted before is gone, so after members came,
went or were restarted the numbers are lower than what was asked. It asks the node at its administration address
(--admin-addr), and the other members at the addresses that they publish. It names
the members that it cannot ask. Each member lists the keys that it owns. The first
list comes from a sample of the checks. A key's name does not contain its rule: the
counts of several rules whose keys have the same parts are added up. What is lent of
a key, by leases or to Envoys, has how many units and how many more a second that is,
to how many holders, and when the last of it ends. check --explain names them.

Exit status: 0 done, 1 failed, 2 the node cannot be asked.`,
		Example: `  weir top
  weir top --server 127.0.0.1:8182 -n 5 --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > 1000 {
				return usage(cmd, "-n %d is out of range: give 1 to 1000", n)
			}
			return commandline.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.adminServer(cmd, &server)
			if err != nil {
				return err
			}
			out, err := askTop(cmd.Context(), h, n, one)
			if err != nil {
				return err
			}
			return a.show(asJSON, out, a.topText(out))
		},
	}
	f := cmd.Flags()
	server.addFlags(f)
	f.IntVarP(&n, "number", "n", 10, "list `N` keys of each kind")
	f.BoolVar(&one, "one", false, "ask only that node")
	f.BoolVar(&asJSON, "json", false, "print an object")
	return cmd
}

// topKeys are the top lists of one node or several.
type topKeys struct {
	Hottest []transport.TopKey `json:"hottest"`
	Denied  []transport.TopKey `json:"denied"`
	// Refused are the keys that were refused most in the last hour, with their rules, if the node records that.
	Refused []denials.Key `json:"refused,omitempty"`
	// Warnings are those of the nodes that were asked, see [transport.MemberSelf].
	Warnings []string `json:"warnings,omitempty"`
	// Unasked are the members whose keys are missing, and why.
	Unasked []unasked `json:"unasked,omitempty"`
}

// askTop asks a node, and unless one is set, also the other members that it knows.
func askTop(ctx context.Context, h *httpRemote, n int, one bool) (*topKeys, error) {
	path := fmt.Sprintf("/v1/top?n=%d", n)
	var out topKeys
	if err := h.do(ctx, http.MethodGet, path, nil, &out); err != nil {
		return nil, err
	}
	var seen struct{ Members []listed }
	if !one {
		err := h.do(ctx, http.MethodGet, "/v1/members", nil, &seen)
		if why, ok := errors.AsType[*refused](err); err != nil && !(ok && why.status == http.StatusNotFound) {
			out.Warnings = append(out.Warnings, fmt.Sprintf("no other member was asked: %v", err)) // a node alone has none
		}
	}
	var mu sync.Mutex
	eachMember(ctx, seen.Members, func(ctx context.Context, m *listed) error {
		var more topKeys
		if err := h.member(m).do(ctx, http.MethodGet, path, nil, &more); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out.Hottest, out.Denied = append(out.Hottest, more.Hottest...), append(out.Denied, more.Denied...)
		for _, w := range more.Warnings {
			out.Warnings = append(out.Warnings, m.Name+": "+w)
		}
		return nil
	})
	var refused console.Denied
	more := fmt.Sprintf("/v1/denials?since=1h&n=%d&one=%v", n, one)
	if h.do(ctx, http.MethodGet, more, nil, &refused) == nil { // a node of another version has no record
		out.Refused = refused.Keys
	}
	out.Unasked = unaskedOf(seen.Members)
	out.Hottest, out.Denied = mostOf(out.Hottest, n), mostOf(out.Denied, n)
	return &out, nil
}

// mostOf sums the entries with the same name, and keeps the n highest. A name can come
// from several members, or from the keys of several rules.
func mostOf(keys []transport.TopKey, n int) []transport.TopKey {
	at := map[string]int{}
	out := []transport.TopKey{}
	for _, k := range keys {
		i, ok := at[k.Key]
		if !ok {
			at[k.Key] = len(out)
			out = append(out, k)
			continue
		}
		out[i].Count += k.Count
		out[i].Error += k.Error
		to := &out[i].Lent
		to.Holders, to.Units, to.Rate = to.Holders+k.Lent.Holders, to.Units+k.Lent.Units, to.Rate+k.Lent.Rate
		if k.Lent.Until.After(to.Until) {
			to.Until = k.Lent.Until
		}
	}
	slices.SortFunc(out, func(a, b transport.TopKey) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return out[:min(n, len(out))]
}

func (a *app) topText(out *topKeys) string {
	var b strings.Builder
	for _, list := range []struct {
		title string
		keys  []transport.TopKey
		none  string
	}{{"asked for most", out.Hottest, "none in the sample of checks yet"}, {"denied most", out.Denied, "nothing yet"}} {
		var t term.Table
		t.Head(a.OutStyle.Bold, list.title, "times")
		for _, k := range list.keys {
			t.Texts(nil, term.Clean(k.Key), fmt.Sprint(k.Count), lentText(&k.Lent))
		}
		if len(list.keys) == 0 {
			t.Texts(nil, list.none)
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(t.String())
	}
	if len(out.Refused) > 0 {
		b.WriteString("\n" + a.refusedText(out.Refused))
	}
	if len(out.Warnings) > 0 {
		b.WriteString("\n" + a.warningsText("", out.Warnings))
	}
	if len(out.Unasked) > 0 {
		b.WriteString("\n" + unaskedText(out.Unasked))
	}
	return b.String()
}

// lentText tells what is lent, as in "lent 250, and 1000 a second, to 50 until 10:32:05 UTC"; "" if nothing is.
func lentText(l *transport.Lent) string {
	switch until := l.Until.UTC().Format("15:04:05 UTC"); {
	case l.Holders == 0:
		return ""
	case l.Rate > 0:
		return fmt.Sprintf("lent %d, and %d a second, to %d until %s", l.Units, l.Rate, l.Holders, until)
	default:
		return fmt.Sprintf("lent %d to %d until %s", l.Units, l.Holders, until)
	}
}

// refusedText lists keys that were refused, with what asks for the reason of each.
func (a *app) refusedText(keys []denials.Key) string {
	var t term.Table
	t.Head(a.OutStyle.Bold, "refused in the last hour", "by", "times", "last (UTC)")
	var asks strings.Builder
	for i := range keys {
		k := &keys[i]
		by := k.Rule
		if k.Limit != "" {
			by += "/" + k.Limit
		}
		t.Texts(nil, term.Clean(cmp.Or(k.Key, "each request")), term.Clean(by), fmt.Sprint(k.Count),
			k.Last.UTC().Format("15:04:05"))
		if n := len(k.Samples); n > 0 && k.Samples[n-1].Path != "" {
			asks.WriteString("  " + checkCommand(&k.Samples[n-1].Sample, k.Tenant) + "\n")
		}
	}
	if asks.Len() == 0 {
		return t.String() // names are not kept
	}
	return t.String() + "why each of them is refused now:\n" + asks.String()
}

// checkCommand returns the command that explains a request that was refused. It counts nothing.
func checkCommand(s *denials.Sample, tenant string) string {
	text := "weir check " + shellWord(s.Path)
	for _, f := range []struct{ flag, value string }{{"user", s.User}, {"ip", s.IP}, {"method", s.Method},
		{"tenant", tenant}} {
		if f.value != "" {
			text += " --" + f.flag + " " + shellWord(f.value)
		}
	}
	return text + " --cost 0 --explain --server http://HOST:PORT"
}

// shellWord quotes a word for a shell, if it needs that.
func shellWord(s string) string {
	s = term.Clean(s)
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
