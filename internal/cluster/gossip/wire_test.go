package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

func full() about {
	return about{
		Member: peer.Member{
			Instance: 1<<64 - 1, State: peer.Leaving, PeerAddr: "10.1.2.3:7947", GRPCAddr: "host.example:8081",
			HTTPAddr: "[::1]:8080", AdminAddr: "[::1]:8082", RulesHash: 12345, Wire: 3, Version: "1.2.3", ZoneData: "2025c",
		},
		cluster: "prod", ring: 1 << 63, secret: 1<<64 - 1, started: 1700000000000,
	}
}

func TestMetadataRoundTrip(t *testing.T) {
	for _, a := range []about{full(), {Member: peer.Member{Instance: 1}}} {
		b, err := a.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		if err != nil || got != a {
			t.Errorf("got %+v, %v; want %+v", got, err, a)
		}
	}
}

// A field that is added to Member must be added to the metadata, or listed here as sent
// in another way.
func TestMetadataHasEveryField(t *testing.T) {
	a := full()
	a.Name, a.GossipAddr = "carried by memberlist", "carried by memberlist"
	for f, v := range reflect.ValueOf(a.Member).Fields() {
		if v.IsZero() {
			t.Errorf("field %s of Member is not in this test", f.Name)
		}
	}
}

// Fields that a later version adds are skipped.
func TestMetadataOfALaterVersion(t *testing.T) {
	a := full()
	b, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, 200, 3, 0xff, 0xfe, 0xfd)
	if got, err := decode(b); err != nil || got != a {
		t.Errorf("with a field of tag 200: %+v, %v", got, err)
	}
}

func TestMetadataThatIsNone(t *testing.T) {
	const tagCluster, tagInstance, tagState, tagVersion = 1, 3, 5, 11
	mark := []byte(metaMark)
	for name, b := range map[string][]byte{
		"nothing":           {},
		"another mark":      []byte("serf1\x01\x00"),
		"no instance":       mark,
		"a length too long": append(bytes.Clone(mark), tagCluster, 200, 'a'),
		"a tag alone":       append(bytes.Clone(mark), tagCluster),
		"an endless length": append(bytes.Clone(mark), tagCluster, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff, 0xff),
		"a number of no end": append(bytes.Clone(mark), tagInstance, 1, 0x80),
		"a number too short": append(bytes.Clone(mark), tagInstance, 2, 1, 1),
		"no UTF-8":           append(bytes.Clone(mark), tagInstance, 1, 1, tagVersion, 1, 0xff),
		"a dead one":         append(bytes.Clone(mark), tagInstance, 1, 1, tagState, 1, byte(peer.Dead)),
		"an unknown state":   append(bytes.Clone(mark), tagInstance, 1, 1, tagState, 2, 0xff, 0x7f),
	} {
		if a, err := decode(b); err == nil {
			t.Errorf("%s: decoded as %+v", name, a)
		}
	}
}

func TestMetadataAtTheBound(t *testing.T) {
	a := full()
	b, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	// Beyond 127 bytes the length takes one byte more.
	a.HTTPAddr += strings.Repeat("x", memberlist.MetaMaxSize-len(b)-1)
	if b, err = a.encode(); err != nil || len(b) != memberlist.MetaMaxSize {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	a.HTTPAddr += "x"
	if _, err := a.encode(); !errors.Is(err, ErrMeta) {
		t.Errorf("one byte too many: %v, want ErrMeta", err)
	}
}

func TestListRoundTrip(t *testing.T) {
	list := []gone{}
	for f := dead; f <= left; f++ {
		g := gone{about: full(), fate: f, since: someday.Add(-time.Duration(f) * time.Minute)}
		g.Name, g.GossipAddr = fmt.Sprint("node-", f), "[::1]:7946"
		list = append(list, g)
	}
	later := someday.Add(time.Hour) // another clock: only ages travel
	got, err := decodeGone(encodeGone(list, someday), later)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].since = list[i].since.Add(time.Hour)
	}
	if !reflect.DeepEqual(got, list) {
		t.Errorf("got %+v, want %+v", got, list)
	}
	if got, err := decodeGone(encodeGone(nil, someday), someday); err != nil || len(got) != 0 {
		t.Errorf("nobody: %v, %v", got, err)
	}
}

func TestListsThatAreNone(t *testing.T) {
	g := gone{about: full(), fate: left, since: someday}
	g.Name, g.GossipAddr = "a", "127.0.0.1:1"
	good := encodeGone([]gone{g}, someday)
	if _, err := decodeGone(good, someday); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := decodeGone(good[:n], someday); err == nil {
			t.Errorf("the first %d of %d bytes were taken for a list", n, len(good))
		}
	}
	if _, err := decodeGone(append(bytes.Clone(good), 0), someday); err == nil {
		t.Error("a byte too many was taken for a list")
	}
	for name, change := range map[string]func(*gone){
		"no name":    func(g *gone) { g.Name = "" },
		"no address": func(g *gone) { g.GossipAddr = "localhost:1" },
		"no fate":    func(g *gone) { g.fate = left + 1 },
		"long name":  func(g *gone) { g.Name = strings.Repeat("n", 200) },
		"dead state": func(g *gone) { g.State = peer.Dead },
	} {
		bad := g
		change(&bad)
		if _, err := decodeGone(encodeGone([]gone{bad}, someday), someday); err == nil {
			t.Errorf("%s: taken for a list", name)
		}
	}
	many := append([]byte(recordMark), 0xff, 0xff, 0xff, 0xff, 0x0f)
	if _, err := decodeGone(many, someday); err == nil {
		t.Error("four billion members were taken for a list")
	}
}

func FuzzDecode(f *testing.F) {
	a := full()
	b, err := a.encode()
	if err != nil {
		f.Fatal(err)
	}
	g := gone{about: a, fate: left, since: someday}
	g.Name, g.GossipAddr = "a", "127.0.0.1:1"
	f.Add(b)
	f.Add(encodeGone([]gone{g, g}, someday))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decode(b); err == nil {
			again, err := a.encode()
			if err != nil {
				return // metadata of more than 512 bytes does not arrive
			}
			if got, err := decode(again); err != nil || got != a {
				t.Fatalf("%+v became %+v, %v", a, got, err)
			}
		}
		if list, err := decodeGone(b, someday); err == nil {
			if _, err := decodeGone(encodeGone(list, someday), someday); err != nil && len(b) < 512 {
				t.Fatalf("what was read cannot be written: %v", err)
			}
		}
	})
}

// A full cluster refuses new nodes, and accepts its members.
func TestFull(t *testing.T) {
	_, cfg := configure(t, "self")
	g := &Gossip{cfg: cfg, roster: newRoster("self")}
	meta := func(name string) []byte {
		a := about{Member: peer.Member{Instance: 9}, cluster: cfg.ClusterName, ring: cfg.RingConfig}
		b, err := a.encode()
		if err != nil {
			t.Fatal(name, err)
		}
		return b
	}
	judge := func(name string) error {
		if r := g.judge(&memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta(name)}); r != nil {
			return r
		}
		return nil
	}
	for i := range MaxMembers - 1 {
		name := fmt.Sprint("node-", i)
		if err := judge(name); err != nil {
			t.Fatalf("member %d of %d: %v", i+2, MaxMembers, err)
		}
		g.roster.alive(run(name, 1))
	}
	if err := judge("one more"); !errors.Is(err, ErrFull) {
		t.Errorf("one more than %d: %v, want ErrFull", MaxMembers, err)
	}
	for _, name := range []string{"self", "node-7"} {
		if err := judge(name); err != nil {
			t.Errorf("%s is in already: %v", name, err)
		}
	}
}

// Invented live nodes that fill the cluster keep no member out that was here before. They
// keep out who was not, and members that fill it keep out all.
func TestInventedNodesKeepNoMemberOut(t *testing.T) {
	_, cfg := configure(t, "self")
	members := map[string]bool{"node-0": true, "back": true, "gone": true}
	cfg.Vouched = func(k peer.Known) bool { return members[k.Name] }
	g := &Gossip{cfg: cfg, roster: newRoster("self")}
	a := about{Member: peer.Member{Instance: 9}, cluster: cfg.ClusterName, ring: cfg.RingConfig}
	meta, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	judge := func(name string) error {
		if r := g.judge(&memberlist.Node{Name: name, Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta}); r != nil {
			return r
		}
		return nil
	}
	for i := range MaxMembers - 1 {
		g.roster.alive(run(fmt.Sprint("node-", i), 1))
	}
	for name, f := range map[string]fate{"back": dead, "gone": left} {
		g.roster.keep(gone{about: run(name, 1), fate: f})
		if err := judge(name); err != nil {
			t.Errorf("a member that was here before: %v", err)
		}
	}
	if err := judge("new"); !errors.Is(err, ErrFull) {
		t.Errorf("one that was not here: %v, want ErrFull", err)
	}
	for name := range g.roster.live {
		members[name] = true
	}
	if err := judge("back"); !errors.Is(err, ErrFull) {
		t.Errorf("where members fill the cluster: %v, want ErrFull", err)
	}
}

func TestImpossibleNodes(t *testing.T) {
	_, cfg := configure(t, "self")
	g := &Gossip{cfg: cfg, roster: newRoster("self")}
	a := about{Member: peer.Member{Instance: 9}, cluster: cfg.ClusterName, ring: cfg.RingConfig}
	meta, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]memberlist.Node{
		"no name":     {Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta},
		"long name":   {Name: strings.Repeat("n", 500), Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta},
		"a line":      {Name: "n\nm", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta},
		"no address":  {Name: "n", Port: 1, Meta: meta},
		"odd address": {Name: "n", Addr: net.IP{1, 2, 3}, Port: 1, Meta: meta},
		"no port":     {Name: "n", Addr: net.IPv4(127, 0, 0, 1), Meta: meta},
		"no metadata": {Name: "n", Addr: net.IPv4(127, 0, 0, 1), Port: 1},
	} {
		if r := g.judge(&n); r == nil || !errors.Is(r, ErrForeign) {
			t.Errorf("%s: %v, want ErrForeign", name, r)
		}
	}
}

// A node that is only reported is judged like one that joins: gossip carries reports of
// nodes that never asked.
func TestWhoIsHeardOfIsJudged(t *testing.T) {
	n := start(t, "self")
	for want, a := range map[error]about{
		ErrOtherCluster: {cluster: "other", ring: n.cfg.RingConfig},
		ErrOtherSecret:  {cluster: n.cfg.ClusterName, ring: n.cfg.RingConfig, secret: 1},
	} {
		a.Instance = 9
		meta, err := a.encode()
		if err != nil {
			t.Fatal(err)
		}
		foreign := &memberlist.Node{Name: "x", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta}
		if err := (delegate{n.Gossip}).NotifyAlive(foreign); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		n.says("is kept out", `\"x\"`, want.Error())
	}
}

// News of a member that left is passed on in packets, once. News of a death is not, nor
// is old news.
func TestNewsIsPassedOn(t *testing.T) {
	n := start(t, "self")
	d := delegate{n.Gossip}
	told := func(g gone) int {
		g.GossipAddr = "127.0.0.1:1"
		n.hear(encodeGone([]gone{g}, time.Now()))
		return n.news.NumQueued()
	}
	now := func(name string, f fate) gone {
		return gone{about: run(name, 1), fate: f, since: time.Now()}
	}
	if got := told(now("a", dead)); got != 0 {
		t.Errorf("%d messages after a death, want none", got)
	}
	if got := told(now("a", left)); got != 1 {
		t.Errorf("%d messages after a leave, want one", got)
	}
	if got := told(now("a", forgotten)); got != 1 {
		t.Errorf("%d messages after what is no news, want the one", got)
	}
	if got := told(now("b", forgotten)); got != 2 {
		t.Errorf("%d messages, want two", got)
	}
	messages := d.GetBroadcasts(2, 1400)
	if len(messages) == 0 {
		t.Fatal("nothing goes into a packet")
	}
	for _, m := range messages {
		if list, err := decodeGone(m, time.Now()); err != nil || len(list) != 1 {
			t.Errorf("a message of %d members, %v", len(list), err)
		}
	}
}

// The largest possible record fits into a packet.
func TestTheLargestNewsFits(t *testing.T) {
	g := gone{about: full(), fate: left, since: someday}
	b, err := g.encode()
	if err != nil {
		t.Fatal(err)
	}
	g.HTTPAddr += strings.Repeat("x", memberlist.MetaMaxSize-len(b)-1)
	g.Name, g.GossipAddr = strings.Repeat("n", maxName), "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"
	if n, most := len(encodeGone([]gone{g}, someday)), profile().UDPBufferSize-100; n > most {
		t.Errorf("%d bytes, and a packet has room for %d", n, most)
	}
}
