package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// town is a node's directory. It has Self set for one of the members.
type town struct {
	warnings []string
	self     string
	members  []transport.Member
	forgot   []string
	slow     bool // what is forgotten is in the list for a while
}

func (d *town) Members() []transport.Member {
	out := append([]transport.Member{}, d.members...)
	for i := range out {
		if out[i].Name == d.self {
			out[i].Self = &transport.MemberSelf{Keys: 10 + i, ChecksPerSecond: uint64(100 + i), LagMs: 2,
				Unacknowledged: uint64(i), Warnings: d.warnings}
		}
	}
	return out
}

func (d *town) Forget(name string) error {
	if name != "node-3" {
		return fmt.Errorf("%w: no dead member of that name: %q", limiter.ErrInvalid, name)
	}
	d.forgot = append(d.forgot, name)
	if !d.slow {
		d.members = d.members[:2]
	}
	return nil
}

func (d *town) Expel(name string) error   { return d.Forget(name) }
func (d *town) Readmit(name string) error { return d.Forget(name) }

// towns serves two members of three; the third is dead.
func towns(t *testing.T) (addr string, first *town) {
	t.Helper()
	members := []transport.Member{
		{Name: "node-1", Address: "127.0.0.1:1", Instance: "a", State: "active", Share: 0.5, RulesHash: "00aa"},
		{Name: "node-2", Address: "127.0.0.1:2", Instance: "b", State: "active", Share: 0.5, RulesHash: "00aa"},
		{Name: "node-3", Address: "127.0.0.1:3", Instance: "c", State: "dead", RulesHash: "00bb", AdminAddr: "127.0.0.1:1"},
	}
	nodes := []*town{{self: "node-1"}, {self: "node-2"}}
	for i, d := range nodes {
		s := transport.NewAdmin(transport.AdminOptions{Directory: d, Warnings: func() []string {
			return d.warnings
		}, Top: func(string, int) (hot, denied []transport.TopKey) {
			lent := transport.Lent{Holders: 1, Units: 20, Rate: uint64(30 * i), Until: time.Unix(60, 0)}
			return []transport.TopKey{{Key: "/towns:ada", Count: uint64(5 * (i + 1)), Lent: lent},
				{Key: fmt.Sprint("/only:", i), Count: 7}}, []transport.TopKey{{Key: "/only:2", Count: 3, Lent: lent}}
		}})
		h := httptest.NewServer(s.Handler())
		t.Cleanup(h.Close)
		members[i].AdminAddr = strings.TrimPrefix(h.URL, "http://")
	}
	for _, d := range nodes {
		d.members = members
	}
	return members[0].AdminAddr, nodes[0]
}

// runAs runs the tool as someone without a terminal.
func runAs(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	o := person{}.run(t, args...)
	return o.status, o.out, o.err
}

func TestMembers(t *testing.T) {
	addr, _ := towns(t)
	status, out, errs := runAs(t, "members", "--server", addr)
	if status != ExitOK || errs != "" {
		t.Fatalf("%d %s %s", status, out, errs)
	}
	lines := strings.Split(out, "\n")
	if len(lines) != 5 {
		t.Fatalf("%q", out)
	}
	for i, want := range []string{
		"name address state share keys checks/s lag unacked rules tzdata",
		"node-1 127.0.0.1:1 active 50.0 % 10 100 2 ms 0 00aa -",
		"node-2 127.0.0.1:2 active 50.0 % 11 101 2 ms 1 00aa -",
		"node-3 127.0.0.1:3 dead 0.0 % - - - - 00bb -",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	status, out, _ = runAs(t, "members", "--json", "--server", "http://"+addr)
	var got struct{ Members []transport.Member }
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != ExitOK || len(got.Members) != 3 ||
		got.Members[1].Self == nil || got.Members[2].Self != nil {
		t.Errorf("%d %v %s", status, err, out)
	}
}

// Rules that differ between live members are pointed out; those of the dead are
// not.
func TestMembersWithDifferentRules(t *testing.T) {
	addr, first := towns(t)
	first.members[1].RulesHash = "00cc"
	if _, out, _ := runAs(t, "members", "--server", addr); !strings.Contains(out, "Members have different rules.") {
		t.Error(out)
	}
}

// The release of the time zone database is shown, and pointed out where it differs.
func TestMembersWithDifferentZones(t *testing.T) {
	addr, first := towns(t)
	first.members[0].ZoneData, first.members[2].ZoneData = "2025c", "2024a" // one does not tell, one is dead
	_, out, _ := runAs(t, "members", "--server", addr)
	if strings.Contains(out, "different time zone") || !strings.Contains(out, "00aa   2025c") {
		t.Error(out)
	}
	first.members[1].ZoneData = "2025b"
	if _, out, _ := runAs(t, "members", "--server", addr); !strings.Contains(out,
		"Members have different time zone databases") {
		t.Error(out)
	}
}

// A member to which the node has no connection is shown as such, and pointed out.
func TestMembersUnreachable(t *testing.T) {
	addr, first := towns(t)
	if _, out, _ := runAs(t, "members", "--server", addr); strings.Contains(out, "unreachable") ||
		strings.Contains(out, "no connection") {
		t.Error(out)
	}
	first.members[1].Unreachable = true
	_, out, _ := runAs(t, "members", "--server", addr)
	if !strings.Contains(out, "  active, unreachable  ") ||
		!strings.Contains(out, "The node that was asked has no connection to members: see if its /readyz") {
		t.Error(out)
	}
	if _, out, _ = runAs(t, "members", "--json", "--server", addr); strings.Count(out, `"unreachable": true`) != 1 {
		t.Error(out)
	}
}

// Members that were not asked are named, with the reason.
func TestMembersNotAsked(t *testing.T) {
	addr, first := towns(t)
	for why, at := range map[string]string{
		"its --admin-addr is for its own machine only, or off": "",
		"another node answers at " + addr:                      addr,
		"node 127.0.0.1:1 cannot be asked: ":                   "127.0.0.1:1",
	} {
		first.members[1].AdminAddr = at
		for _, command := range []string{"members", "top"} {
			status, out, errs := runAs(t, command, "--server", addr)
			if told := strings.Contains(out, "\nnode-2 was not asked: "+why); status != ExitOK ||
				told == (command == "top" && at == addr) {
				t.Errorf("%s with node-2 at %q: %d %s%s", command, at, status, out, errs)
			}
			if strings.Contains(out, "node-3 was not asked") {
				t.Errorf("%s names a dead member: %s", command, out)
			}
			if _, out, _ = runAs(t, command, "--json", "--server", addr); at == "" && !strings.Contains(out, why) {
				t.Errorf("%s --json does not say why: %s", command, out)
			}
		}
	}
}

func TestForget(t *testing.T) {
	addr, first := towns(t)
	status, out, errs := runAs(t, "members", "forget", "node-2", "--server", addr)
	if status != ExitFailed || !strings.Contains(errs, `no dead member of that name: "node-2"`) {
		t.Errorf("%d %s %s", status, out, errs)
	}
	status, out, errs = runAs(t, "members", "forget", "node-3", "--server", addr)
	if status != ExitOK || out != "node-3 is forgotten; 2 members left\n" || len(first.forgot) != 1 {
		t.Errorf("%d %s %s", status, out, errs)
	}
	if status, _, errs = runAs(t, "members", "forget"); status != ExitUsage ||
		!strings.Contains(errs, "give the name of one member") {
		t.Errorf("%d %s", status, errs)
	}
}

// TestExpelAndReadmit asks a node to throw a member out, and to let it in again.
func TestExpelAndReadmit(t *testing.T) {
	var addr string
	for command, want := range map[string]string{"expel": "node-3 is expelled; 2 members left\n",
		"readmit": "node-3 may come back; 2 members besides it\n"} {
		addr, _ = towns(t)
		if status, out, errs := runAs(t, "members", command, "node-3", "--server", addr); status != ExitOK || out != want {
			t.Errorf("%d %q %s", status, out, errs)
		}
		if status, _, errs := runAs(t, "members", command); status != ExitUsage ||
			!strings.Contains(errs, "give the name of one member") {
			t.Errorf("%d %s", status, errs)
		}
	}
	if status, out, errs := runAs(t, "members", "expel", "node-2", "--server", addr); status != ExitFailed {
		t.Errorf("%d %q %s", status, out, errs)
	}
	addr, first := towns(t)
	if status, out, errs := runAs(t, "members", "expel", "node-33", "--server", addr); status != ExitFailed ||
		!strings.Contains(errs, `no member "node-33"`) {
		t.Errorf("a name that no member has: %d %q %s", status, out, errs)
	}
	first.members = first.members[:2]
	if status, out, errs := runAs(t, "members", "expel", "node-3", "--server", addr); status != ExitFailed ||
		len(first.forgot) != 0 {
		t.Errorf("a name that no member has any more: %d %q %s", status, out, errs)
	}
	if status, out, errs := runAs(t, "members", "expel", "node-3", "--unknown", "--server", addr); status != ExitOK ||
		len(first.forgot) != 1 {
		t.Errorf("with --unknown: %d %q %s", status, out, errs)
	}
}

// A forgotten member is not listed as left over, though the node may still list it for
// a moment.
func TestForgottenIsNotLeft(t *testing.T) {
	addr, first := towns(t)
	first.slow = true
	if status, out, errs := runAs(t, "members", "forget", "node-3", "--server", addr); status != ExitOK ||
		out != "node-3 is forgotten; 2 members left\n" {
		t.Errorf("%d %s %s", status, out, errs)
	}
}

func TestTop(t *testing.T) {
	addr, _ := towns(t)
	status, out, errs := runAs(t, "top", "--server", addr, "-n", "2")
	want := "asked for most  times\n/towns:ada         15  lent 40, and 30 a second, to 2 until 00:01:00 UTC\n" +
		"/only:0             7\n\ndenied most  times\n" +
		"/only:2          6  lent 40, and 30 a second, to 2 until 00:01:00 UTC\n"
	if status != ExitOK || out != want {
		t.Errorf("%d %s\n%s\nwant\n%s", status, errs, out, want)
	}
	if _, out, _ = runAs(t, "top", "--server", addr, "--one"); strings.Contains(out, "/only:1") ||
		!strings.Contains(out, "/only:2          3  lent 20 to 1 until 00:01:00 UTC\n") {
		t.Errorf("it asked the others too: %s", out)
	}
	if _, out, _ = runAs(t, "top", "--help"); !strings.Contains(out, "from when it got a key's partition") {
		t.Errorf("it does not say since when it counts: %s", out)
	}
	if status, _, _ = runAs(t, "top", "-n", "0"); status != ExitUsage {
		t.Errorf("-n 0: %d", status)
	}
}

// A node without a cluster, another program, and no listener have distinct errors.
func TestMembersOfNoCluster(t *testing.T) {
	s := transport.NewAdmin(transport.AdminOptions{})
	alone := httptest.NewServer(s.Handler())
	defer alone.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	overGRPC, overHTTP := serveNode(t, frozen(t, time.Now))
	for _, c := range []struct {
		server string
		status int
		want   string
	}{
		{alone.URL, ExitFailed, "this node is in no cluster"},
		{other.URL, ExitUsage, "is not a node"},
		{overGRPC, ExitUsage, "does not speak HTTP; give the address of the node's administration, its --admin-addr"},
		{overHTTP, ExitFailed, "the node serves it at another address, its --admin-addr"},
		{"127.0.0.1:1", ExitUsage, "is a node running there with --admin-addr 127.0.0.1:1? (node serve)"},
		{"https://127.0.0.1:1", ExitUsage, "is a node running there with --admin-addr 127.0.0.1:1? (node serve)"},
		{"unix:/nowhere.sock", ExitUsage, "is a node running there with --admin-addr unix:/nowhere.sock? (node serve)"},
		{"nowhere", ExitUsage, "is no address"},
	} {
		if status, _, errs := runAs(t, "members", "--server", c.server); status != c.status ||
			!strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %s", c.server, status, errs)
		}
	}
}
