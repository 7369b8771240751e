package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/transport"
)

const (
	defaultAdmin = "127.0.0.1:8082"
	// serverHelp is the help text of the flag for it.
	serverHelp = "`ADDRESS` of a node's administration, HOST:PORT or unix:PATH"
	// askAtOnce bounds how many members are asked concurrently.
	askAtOnce = 16
)

func (a *app) membersCommand() *cobra.Command {
	var server adminFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "members [--server ADDRESS]",
		Short: "List the members of a cluster",
		Long: `Lists the members of a cluster as one of them sees them. It asks at the address of
a node's administration, --admin-addr of the node. Keys, checks per second and lag
are what each member says of itself: all are asked where they say that their own
administration is, and a member that cannot be asked has a - in its columns.

Exit status: 0 done, 1 failed, 2 the node cannot be asked.`,
		Example: `  weir members
  weir members --server 127.0.0.1:8182 --json
  weir members --server unix:/run/weir/admin.sock
  weir members forget node-3
  weir members expel node-3`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.adminServer(cmd, &server)
			if err != nil {
				return err
			}
			list, err := askMembers(cmd.Context(), h)
			if err != nil {
				return err
			}
			return a.show(asJSON, map[string]any{"members": list}, a.membersText(list))
		},
	}
	server.addFlags(cmd.PersistentFlags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object")
	cmd.AddCommand(a.forgetCommand(&server), a.expelCommand(&server), a.readmitCommand(&server))
	return cmd
}

func (a *app) forgetCommand(server *adminFlags) *cobra.Command {
	return a.aboutMember(server, &cobra.Command{
		Use:   "forget NAME",
		Short: "Remove a dead member that will not come back",
		Long: `Has a dead member count no more, on all members: for one that will never come
back. Until then it counts for whatever needs a majority, or every member, such as
a rule with the policy closed whose owner and heir are lost. If it does come back
it is a member again.
` + onlyNear,
		Example: "  weir members forget node-3",
	}, "/v1/members/forget", "%s is forgotten; %s left\n")
}

func (a *app) expelCommand(server *adminFlags) *cobra.Command {
	unknown := false
	cmd := a.aboutMember(server, &cobra.Command{
		Use:   "expel NAME",
		Short: "Throw a member out, live or dead, until it is readmitted",
		Long: `Throws a member out of the cluster, as for a machine that somebody else controls:
all members end their connections to it, it counts for nothing, and what it says is
ignored, until weir members readmit. The node that is asked tells the others, and
those that start later hear of it. A member that turned hostile may say the same of
others: if a member does not take it, ask that one too. Whoever has the secret of a
cluster without certificates can come back under another name: replace the keys.
` + onlyNear,
		Example: "  weir members expel node-3",
	}, "/v1/members/expel", "%s is expelled; %s left\n")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "also a name that no member has or had")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var known struct{ Members []transport.Member }
		if err := a.askAdmin(cmd, server, http.MethodGet, "/v1/members", nil, &known); err != nil {
			return err
		}
		if !unknown && !slices.ContainsFunc(known.Members, func(m transport.Member) bool { return m.Name == args[0] }) {
			return fmt.Errorf("the node knows no member %q, so nobody is expelled: list the members with weir members, or "+
				"give --unknown to keep the name out before it comes", term.Clean(args[0]))
		}
		return run(cmd, args)
	}
	return cmd
}

func (a *app) readmitCommand(server *adminFlags) *cobra.Command {
	return a.aboutMember(server, &cobra.Command{
		Use:   "readmit NAME",
		Short: "Let a member in again that was expelled",
		Long: `Ends what weir members expel did, on all members. The member connects by itself.
` + onlyNear,
		Example: "  weir members readmit node-3",
	}, "/v1/members/readmit", "%s may come back; %s besides it\n")
}

// onlyNear ends the help of requests that a node takes from its own machine.
const onlyNear = `
A node takes this only from its own machine: ask it by a loopback address, or the
socket of its administration.`

// aboutMember makes a command that asks a node something about one member, and prints done with
// its name and the number of the others.
func (a *app) aboutMember(server *adminFlags, cmd *cobra.Command, path, done string) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usage(cmd, "give the name of one member")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var left struct{ Members []transport.Member }
		if err := a.askAdmin(cmd, server, http.MethodPost, path, map[string]string{"name": args[0]}, &left); err != nil {
			return err
		}
		// The node's view follows shortly after its answer.
		rest := slices.DeleteFunc(left.Members, func(m transport.Member) bool {
			return m.Name == args[0] || m.State == stateExpelled
		})
		return a.print([]byte(fmt.Sprintf(done, term.Clean(args[0]), term.Plural(len(rest), "member"))))
	}
	return cmd
}

// stateExpelled is the state of a member that was thrown out; only its name is known.
const stateExpelled = "expelled"

// adminFlags say which node's administration is asked, and what it is shown.
type adminFlags struct {
	address string
	shown   credentials
}

func (o *adminFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.address, "server", defaultAdmin, serverHelp)
	o.shown.addFlags(f)
}

// adminServer returns the node at HOST:PORT, http://HOST:PORT, https://HOST:PORT or
// unix:PATH.
func (a *app) adminServer(cmd *cobra.Command, o *adminFlags) (*httpRemote, error) {
	server := o.address
	shown, err := a.open(cmd, o.shown, server)
	if err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		h := newHTTPRemote(server, &url.URL{Scheme: "http", Host: "localhost"}, shown)
		h.admin = true
		h.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}
		return h, nil
	}
	if !strings.Contains(server, "://") {
		if !isHostPort(server) {
			return nil, usage(cmd, "--server %q is no address: give HOST:PORT or unix:PATH of a node's administration", server)
		}
		server = schemeOf(shown) + "://" + server
	}
	r, err := newRemote(cmd, server, shown)
	if err != nil {
		return nil, err
	}
	h, _ := r.(*httpRemote) // newRemote returns this type for a URL
	h.admin = true
	return h, nil
}

// askAdmin sends a request to a path of a node's administration, as do does, with a value as JSON unless that is nil.
func (a *app) askAdmin(cmd *cobra.Command, server *adminFlags, method, path string, v, answer any) error {
	h, err := a.adminServer(cmd, server)
	if err != nil {
		return err
	}
	var body []byte
	if v != nil {
		if body, err = json.Marshal(v); err != nil {
			return err
		}
	}
	return h.do(cmd.Context(), method, path, body, answer)
}

// do sends a request to a path of the node. A problem in the response is returned as an
// error.
func (h *httpRemote) do(ctx context.Context, method, path string, body []byte, answer any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := h.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close(), h.Close()) }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return h.failed(err)
	}
	if resp.StatusCode == http.StatusOK && json.Unmarshal(text, answer) == nil {
		return nil
	}
	if detail := detailOf(text); detail != "" {
		return &refused{resp.StatusCode, fmt.Sprintf("node %s: %s", h.server, detail)}
	}
	return h.noNode(resp.Status, text)
}

// refused is a node's answer to what it does not do.
type refused struct {
	status int
	text   string
}

func (r *refused) Error() string { return r.text }

// listed is a member in the tool's list.
type listed struct {
	transport.Member
	// Unasked is why the member was not asked for its own fields, empty if it was.
	Unasked string `json:"unasked,omitempty"`
}

// askMembers asks a node for the members, and each member for the fields that only it
// knows.
func askMembers(ctx context.Context, h *httpRemote) ([]listed, error) {
	var seen struct{ Members []listed }
	if err := h.do(ctx, http.MethodGet, "/v1/members", nil, &seen); err != nil {
		return nil, err
	}
	eachMember(ctx, seen.Members, func(ctx context.Context, m *listed) error {
		var own struct{ Members []transport.Member }
		if err := h.member(m).do(ctx, http.MethodGet, "/v1/members", nil, &own); err != nil {
			return err // its columns stay empty
		}
		for _, o := range own.Members {
			if o.Instance == m.Instance {
				m.Self = o.Self
			}
		}
		if m.Self == nil {
			return fmt.Errorf("another node answers at %s", m.AdminAddr)
		}
		return nil
	})
	return seen.Members, nil
}

// memberTimeout bounds how long each member may take for its own fields, so that a
// member that hangs does not delay the list.
const memberTimeout = time.Second

// eachMember calls f for the other members that can be asked, some of them
// concurrently, with a context that ends after memberTimeout. For live members that
// were not asked it records why.
func eachMember(ctx context.Context, list []listed, f func(ctx context.Context, m *listed) error) {
	var asking sync.WaitGroup
	room := make(chan struct{}, askAtOnce)
	for i := range list {
		m := &list[i]
		switch {
		case m.Self != nil || m.State == "dead" || m.State == stateExpelled:
			continue
		case m.AdminAddr == "":
			m.Unasked = "its --admin-addr is for its own machine only, or off"
			continue
		}
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(ctx, memberTimeout)
			defer cancel()
			if err := f(ctx, m); err != nil {
				m.Unasked = err.Error()
			}
		})
	}
	asking.Wait()
}

// member returns the administration of a member, which is asked as the node that named it.
func (h *httpRemote) member(m *listed) *httpRemote {
	return newHTTPRemote(m.AdminAddr, &url.URL{Scheme: schemeOf(h.shown), Host: m.AdminAddr}, h.shown)
}

// unasked is a member that was not asked, and why.
type unasked struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// unaskedOf returns the members that were not asked.
func unaskedOf(list []listed) []unasked {
	var out []unasked
	for i := range list {
		if m := &list[i]; m.Unasked != "" {
			out = append(out, unasked{m.Name, m.Unasked})
		}
	}
	return out
}

// unaskedText returns a line for each member that was not asked.
func unaskedText(list []unasked) string {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "%s was not asked: %s\n", term.Clean(m.Name), term.Clean(m.Why))
	}
	return b.String()
}

func (a *app) membersText(list []listed) string {
	var t term.Table
	t.Head(a.OutStyle.Bold, "name", "address", "state", "share", "keys", "checks/s", "lag", "unacked", "rules", "tzdata")
	hashes, releases, unreachable := map[string]bool{}, map[string]bool{}, false
	for i := range list {
		m := &list[i]
		row := []term.Cell{
			{Text: term.Clean(m.Name)}, {Text: term.Clean(m.Address)}, {Text: term.Clean(m.State)},
			{Text: fmt.Sprintf("%.1f %%", 100*m.Share)},
		}
		if m.Unreachable {
			row[2].Text += ", unreachable"
			row[2].Paint = a.OutStyle.Red
			unreachable = true
		}
		if m.State == "dead" || m.State == stateExpelled {
			row[2].Paint = a.OutStyle.Red
		} else {
			hashes[m.RulesHash], releases[cmp.Or(m.ZoneData, "-")] = true, true
		}
		if s := m.Self; s != nil {
			row = append(row, term.Cell{Text: fmt.Sprint(s.Keys)}, term.Cell{Text: fmt.Sprint(s.ChecksPerSecond)},
				term.Cell{Text: fmt.Sprintf("%.0f ms", s.LagMs)}, term.Cell{Text: fmt.Sprint(s.Unacknowledged)})
		} else {
			row = append(row, term.Cell{Text: "-"}, term.Cell{Text: "-"}, term.Cell{Text: "-"}, term.Cell{Text: "-"})
		}
		rules := term.Clean(m.RulesHash)
		if m.State == stateExpelled && m.Self == nil {
			rules = "-" // only its name is known
		}
		t.Row(append(row, term.Cell{Text: rules}, term.Cell{Text: term.Clean(cmp.Or(m.ZoneData, "-"))})...)
	}
	text := t.String()
	if len(hashes) > 1 {
		text += a.OutStyle.Red("Members have different rules.") + "\n"
	}
	if delete(releases, "-"); len(releases) > 1 {
		text += a.OutStyle.Red("Members have different time zone databases: windows of calendars may depend on the owner.") +
			"\n"
	}
	if unreachable {
		text += a.OutStyle.Red("The node that was asked has no connection to members: see if its /readyz says that it "+
			"is expelled, and check their --peer-addr and --advertise.") + "\n"
	}
	for i := range list {
		if s := list[i].Self; s != nil {
			text += a.warningsText(list[i].Name, s.Warnings)
		}
	}
	return text + unaskedText(unaskedOf(list))
}

// warningsText returns a line for each warning of a member; of the node that was asked if
// name is empty.
func (a *app) warningsText(name string, warnings []string) string {
	var b strings.Builder
	for _, w := range warnings {
		if name != "" {
			w = name + ": " + w
		}
		b.WriteString(a.OutStyle.Red(term.Clean(w)) + "\n")
	}
	return b.String()
}
