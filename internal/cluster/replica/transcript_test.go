package replica

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew")

const ms = limiter.Millisecond

// TestTranscripts: the machines say what the files in testdata say, and each story ends
// as it should. To see what a change does to the protocol, write the files anew and read
// the difference:
//
//	go test ./internal/cluster/replica -run '^TestTranscripts$' -rewrite
func TestTranscripts(t *testing.T) {
	for name, x := range stories() {
		t.Run(name, func(t *testing.T) {
			s := x.begin(t, x.policy)
			x.play(s)
			got := "# " + strings.TrimSpace(x.about) + "\n" + s.text.String()
			path := filepath.Join("testdata", name+".txt")
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the transcript is another: write it anew with -rewrite and read the difference. From the first line "+
					"that differs:\n%s", differs(string(want), got))
			}
		})
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, ok := stories()[strings.TrimSuffix(filepath.Base(f), ".txt")]; !ok {
			t.Errorf("%s is no story any more", f)
		}
	}
}

// differs returns what follows in got, from the first line on that is not in want.
func differs(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range b {
		if i >= len(a) || a[i] != b[i] {
			return strings.Join(b[i:min(len(b), i+10)], "\n")
		}
	}
	return "(it ends earlier)"
}

// tale is one story. play asserts what it is about.
type tale struct {
	about  string
	policy limiter.Unreachable
	begin  func(*testing.T, limiter.Unreachable) *story
	play   func(*story)
}

func stories() map[string]tale {
	const closed, local, open = limiter.UnreachableClosed, limiter.UnreachableLocal, limiter.UnreachableOpen
	return map[string]tale{
		"first-start": {"Three members start, and nobody has anything: a, whom the ring names, starts the partition " +
			"empty.", closed, tell, firstStart},
		"copying": {"An owner answers D units (5 of 100) ahead of its heir, and withholds replies beyond.", closed,
			begun, copying},
		"takeover": {"The owner crashes. A client asks the heir, which takes over.", closed, begun, takeover},
		"paused-owner": {"The owner is paused, and its heir takes over. When it wakes up it is fenced, and what it had " +
			"is merged.", closed, begun, pausedOwner},
		"fence": {"The owner is cut off, and its clients still reach it: it answers D units (5) and no more.",
			closed, begun, fence},
		"split-closed": {"A split under the policy closed: checks beyond D are not answered in the minority; the " +
			"majority takes over.", closed, begun, split},
		"split-local": {"A split under the policy local: when its heir is silent, the owner answers up to its share, " +
			"33 of 100.", local, begun, split},
		"split-open": {"A split under the policy open: when its heir is silent, the owner answers up to the limit.",
			open, begun, split},
		"heir-crashes": {"The heir crashes: the owner suspends it, renews its epoch, and appoints the third member.",
			local, begun, heirCrashes},
		"handoff": {"The ring now names c: it gets a copy, becomes heir in place of b, and then the owner.", closed,
			begun, handoff},
		"unseen-giver": {"The ring names c, which does not see a: c takes the ownership and renews at once, for b. " +
			"What a withholds is answered.", closed, begun, unseenGiver},
		"two-claims": {"The owner begins a handoff to its heir and is cut off from it, and the heir takes over: that " +
			"is not the handoff.", local, begun, twoClaims},
		"crossing-claim": {"The receiver of a handoff loses sight of the owner and claims the partition. Then the " +
			"handover arrives: it gives its claim up and takes it.", closed, begun, crossingClaim},
		"reload-handoff": {"The rules are loaded anew during a handoff, with a lower limit: the new owner goes on by the " +
			"new one.", closed, begun, reload},
		"late-handover": {"The giver of a handover hears after the deadline of a withheld check that it was taken. An " +
			"attempt at the receiver finds it counted; then the giver takes over.", closed, begun, lateHandover},
		"reopening": {"The receiver crashes during the handover: the giver takes its partition back.", closed, begun,
			reopening},
		"quick-restart": {"The owner restarts within 20 ms. It has forgotten everything, and its heir takes over.", closed,
			begun, quickRestart},
		"several-owners": {"A check over several owners reserves here, and is denied elsewhere: who waits for its charge " +
			"is admitted.", closed, begun, severalOwners},
		"last-resort": {"Owner and heir crash. The third member has an old copy: nobody starts empty while that may " +
			"be missing.", local, begun, lastResort},
		"both-sides": {"A member grants the heir its takeover, moves to the owner's side of a split, and helps it to " +
			"renew: only one decides.", closed, begun, bothSides},
		"newest-lineage": {"The heir of an owner that is cut off takes over, and is lost. The third member's copy wins " +
			"over the first owner's.", closed, begun, newestLineage},
		"broken-partition": {"The owner panics: it drops what it holds, and its heir goes on from its copy.", closed, begun,
			brokenPartition},
	}
}

// ends asserts who decides, who is heir, and how many units were admitted at most.
func (s *story) ends(owners, heir string, admitted uint64) {
	s.t.Helper()
	if got := s.owners(); got != owners {
		s.t.Errorf("in the end %q decide, want %q", got, owners)
	}
	if got := s.heir(); heir != "" && got != heir {
		s.t.Errorf("in the end %q is heir, want %q", got, heir)
	}
	if s.admitted != admitted {
		s.t.Errorf("%d units were admitted, want %d", s.admitted, admitted)
	}
	if s.admitted > 100 {
		s.t.Errorf("%d units were admitted of 100", s.admitted)
	}
}

// left asserts what a member's counter has left.
func (s *story) left(member string, want uint64) {
	s.t.Helper()
	if left := s.of(member).remaining(); left != want {
		s.t.Errorf("%s has %d left, want %d", member, left, want)
	}
}

// answers asserts that a check was answered, or not.
func (s *story) isAnswered(n int, want bool) {
	s.t.Helper()
	if got := slices.Contains(s.answered, n); got != want {
		s.t.Errorf("check %d is answered: %t, want %t", n, got, want)
	}
}

func firstStart(s *story) {
	s.say("the members have connected, and tick")
	for _, m := range s.members {
		m.watched = true
	}
	s.pass(20 * ms)
	s.isAnswered(s.ask("a", 5, false), true)
	s.pass(20 * ms)
	s.ends("a", "b", 5)
}

func copying(s *story) {
	s.isAnswered(s.ask("a", 3, false), true)
	second := s.ask("a", 3, false)
	s.isAnswered(second, false)
	s.pass(3 * ms)
	s.isAnswered(second, true)
	s.say("later")
	s.pass(20 * ms)
	s.isAnswered(s.ask("a", 2, false), true)
	s.pass(20 * ms)
	s.ends("a", "b", 8)
	s.left("b", 92)
}

func takeover(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("a crashes, and its client asks b instead")
	s.crash("a")
	n := s.ask("b", 10, false)
	s.pass(102 * ms)
	s.isAnswered(n, false) // until c has a copy, b answers D
	s.pass(10 * ms)
	s.isAnswered(n, true)
	s.ends("b", "c", 15)
	s.left("c", 85)
}

func pausedOwner(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	withheld := s.ask("a", 6, false)
	s.say("a is paused before it sends anything; its client asks b instead")
	s.of("a").pausedUntil = s.now + 140*ms
	s.flying = nil
	s.ask("b", 2, true)
	s.pass(135 * ms)
	s.say("a wakes up")
	s.pass(5 * ms)
	s.of("a").do(s.of("a").p.Late)
	s.pass(20 * ms)
	s.isAnswered(withheld, false)
	if !slices.Contains(s.refused, withheld) {
		s.t.Error("the withheld check is not refused")
	}
	s.ends("b", "", 7)
	s.left("b", 93)
}

func fence(s *story) {
	s.say("a is cut off from b and c")
	s.cut()
	for range 4 {
		s.ask("a", 2, false)
	}
	s.pass(60 * ms)
	s.say("a client asks b")
	s.ask("b", 2, true)
	s.pass(130 * ms)
	s.ends("ab", "c", 4+2)
	s.say("a is connected again")
	s.mend()
	s.pass(10 * ms)
	s.ends("b", "c", 4+2)
}

// split is the same under each policy: a in the minority, b and c in the majority.
func split(s *story) {
	s.say("a is cut off from b and c, which see only each other; a has not noticed yet")
	s.cut()
	s.of("b").sees("bc")
	s.of("c").sees("bc")
	s.pass(ms)
	before := s.admitted
	for range 3 {
		s.ask("a", 30, false)
	}
	s.pass(130 * ms)
	alone := s.admitted - before
	want := map[limiter.Unreachable]uint64{limiter.UnreachableClosed: 0, limiter.UnreachableLocal: 30,
		limiter.UnreachableOpen: 90}
	if alone != want[s.rule.OnUnreachable] {
		s.t.Errorf("alone it answers %d units, want %d", alone, want[s.rule.OnUnreachable])
	}
	s.ends("ab", "", alone)
	s.say("a is connected again")
	s.mend()
	s.all("abc")
	s.pass(30 * ms)
	if got := s.owners(); len(got) != 1 {
		s.t.Errorf("%q decide", got)
	}
}

func heirCrashes(s *story) {
	s.say("b crashes")
	s.crash("b")
	s.ask("a", 4, false)
	n := s.ask("a", 4, false)
	s.pass(45 * ms)
	s.isAnswered(n, false)
	s.pass(250 * ms)
	s.isAnswered(n, true)
	s.ends("a", "c", 8)
}

func handoff(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("the ring names c as owner, and a as its successor")
	s.ring = []string{"c", "a", "b"}
	s.all("abc")
	s.pass(15 * ms)
	s.ends("c", "a", 5)
	s.left("c", 95)
	if r := s.of("b").p.Role(); r != peer.Nothing {
		s.t.Errorf("the former heir holds %v", r)
	}
}

func unseenGiver(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("the ring names c as owner, and c does not see a")
	s.ring = []string{"c", "b", "a"}
	s.all("abc")
	s.of("c").sees("bc")
	s.pass(6 * ms)
	n := s.ask("a", 6, false)
	s.isAnswered(n, false)
	s.pass(30 * ms)
	s.isAnswered(n, true)
	s.ends("c", "b", 11)
	s.left("c", 89)
}

func reload(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("the ring names b as owner; before it has the ownership, the limit becomes 50")
	s.ring = []string{"b", "a", "c"}
	s.all("abc")
	lower, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 50,
		Window: s.rule.Limits[0].Spec().Window})
	if err != nil {
		s.t.Fatal(err)
	}
	s.rule = &limiter.Rule{Name: s.rule.Name, Limits: []*limiter.Limit{lower}, OnUnreachable: s.rule.OnUnreachable}
	s.key.Rule = s.rule
	s.pass(2 * ms)
	n := s.ask("a", 1, false)
	s.pass(15 * ms)
	if !slices.Contains(s.refused, n) {
		s.t.Error("what waited for the handover is not sent to the new owner")
	}
	s.ask("b", 1, true)
	s.ends("b", "a", 6)
	s.left("b", 44)
}

func lateHandover(s *story) {
	s.say("the ring names b as owner; nothing that b says reaches a from when a hands over")
	s.ring = []string{"b", "a", "c"}
	s.all("abc")
	s.pass(ms)
	id := &arith.Idempotency{ID: 7, Life: time.Minute}
	first := s.askAs(id, "a", 6, false)
	s.pass(ms)
	s.cuts[[2]string{"b", "a"}] = true
	s.pass(310 * ms)
	if s.owners() != "b" || !slices.Contains(s.refused, first) {
		s.t.Errorf("premise: %s owns, and the first attempt is refused: %t", s.owners(), slices.Contains(s.refused, first))
	}
	s.say("a hears it, and a second attempt is answered")
	clear(s.cuts)
	s.pass(500 * ms)
	s.askAs(id, "b", 6, true)
	s.pass(10 * ms)
	s.say("b crashes")
	s.crash("b")
	s.of("a").sees("ac")
	s.of("c").sees("ac")
	s.ask("a", 1, true)
	s.pass(500 * ms)
	s.ends("a", "c", 7)
	s.left("a", 93)
}

func reopening(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("the ring names b as owner, and b crashes before it gets the ownership")
	s.ring = []string{"b", "a", "c"}
	s.all("abc")
	s.pass(ms)
	s.crash("b")
	n := s.ask("a", 1, false)
	s.pass(10 * ms)
	parked := s.ask("a", 1, false)
	s.pass(10 * ms)
	s.say("b leaves the views")
	s.of("a").sees("ac")
	s.of("c").sees("ac")
	s.pass(130 * ms)
	s.isAnswered(n, true)
	s.isAnswered(parked, true)
	s.ends("a", "c", 7)
}

func quickRestart(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("a crashes")
	s.crash("a")
	s.pass(20 * ms)
	s.say("another instance of a is there; the former one is a'")
	s.restart("a")
	s.all("abc")
	s.meet(s.of("a"), s.of("b"))
	s.meet(s.of("a"), s.of("c"))
	s.pass(250 * ms)
	s.isAnswered(s.ask(s.owners(), 1, false), true)
	s.ends(s.owners(), "", 6)
	if left := s.of(s.owners()).remaining(); left != 94 {
		s.t.Errorf("%d are left, want 94", left)
	}
}

func severalOwners(s *story) {
	m := s.of("a")
	s.asked++
	part := &question{n: s.asked, Wait: Wait{Charge: &arith.Charge{}, Until: s.now + 300*ms, Settles: true}}
	k := s.key
	k.Cost = 98
	part.Wait.Charge.Add(k)
	s.line("c -> a: reserve 98 units for check %d, which has another owner too", part.n)
	m.decide(part)
	s.pass(5 * ms)
	waits := s.ask("a", 5, false)
	s.pass(5 * ms)
	s.isAnswered(waits, false)
	s.say("the other owner denies: c has a take back what it reserved")
	m.do(func(t *Step) {
		if is, _, _ := m.p.Own().Conclude(t, &k, nil, s.of("c").self, arith.Fields(&part.Receipt).Time, true); !is {
			s.t.Error("the reservation is not there")
		}
		m.table.Refund(s.now, part.Wait.Charge, part.Receipt)
	})
	s.admitted -= 98
	s.pass(15 * ms)
	s.isAnswered(waits, true)
	s.ends("a", "b", 5)
}

func lastResort(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("c has a copy of before that; a and b crash, and another instance of b is there; the former one is b'")
	c := s.of("c")
	charge := &arith.Charge{}
	k := s.key
	k.Cost = 3
	charge.Add(k)
	if err := c.table.Decide(s.now, charge, new(limiter.Decision)); err != nil {
		s.t.Fatal(err)
	}
	c.do(func(t *Step) {
		first := peer.Epoch{Counter: 1, Instance: s.of("a").self}
		c.p.Begin(t, Fixture{Role: peer.Copy, Epoch: first, Owner: first, Heir: s.of("b").self})
	})
	s.crash("a")
	s.crash("b")
	s.restart("b")
	s.ring = []string{"c", "b", "a"}
	s.all("bc")
	s.pass(900 * ms)
	if got := s.owners(); got != "" {
		s.t.Errorf("%q decides before a second is over", got)
	}
	s.pass(200 * ms)
	s.isAnswered(s.ask("c", 1, false), true)
	s.ends("c", "", 6)
	if left := c.remaining(); left != 96 {
		s.t.Errorf("%d are left, want 96", left)
	}
}

func bothSides(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("a is cut off from b and c; a client asks b")
	s.cut()
	n := s.ask("b", 60, true)
	s.pass(50 * ms)
	s.say("c moves to a's side; a client asks a")
	clear(s.cuts)
	for _, o := range []string{"a", "c"} {
		s.cuts[[2]string{"b", o}], s.cuts[[2]string{o, "b"}] = true, true
	}
	s.flying = nil
	s.meet(s.of("a"), s.of("c"))
	m := s.ask("a", 60, false)
	s.pass(250 * ms)
	s.isAnswered(n, false)
	s.isAnswered(m, true)
	s.ends("a", "c", 65)
}

func newestLineage(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("a is cut off; its client asks b, which takes over, and c becomes heir")
	s.cut()
	s.ask("b", 10, true)
	s.pass(200 * ms)
	if got := s.heir(); got != "c" {
		s.t.Fatalf("%q is heir", got)
	}
	s.say("b crashes, and is forgotten; a and c see nobody")
	s.crash("b")
	s.forget("b")
	s.of("a").sees("a")
	s.of("c").sees("c")
	s.pass(1500 * ms)
	s.say("a is connected to c, and sees it a little later than c sees a")
	clear(s.cuts)
	s.meet(s.of("a"), s.of("c"))
	s.of("c").sees("ac")
	s.pass(110 * ms)
	s.of("a").sees("ac")
	s.pass(1500 * ms)
	owner := s.owners()
	s.ends(owner, "", 15)
	if left := s.of(owner).remaining(); left != 85 {
		s.t.Errorf("%d are left, want 85: 15 were admitted", left)
	}
}

func brokenPartition(s *story) {
	s.ask("a", 5, false)
	s.pass(15 * ms)
	s.say("a panics in a step")
	m := s.of("a")
	m.do(m.p.Break)
	if n := m.table.Count(int(s.id)); n != 0 {
		s.t.Errorf("%d counters are left", n)
	}
	s.pass(120 * ms)
	s.isAnswered(s.ask("b", 1, false), true)
	s.ends("b", "", 6)
	s.left("b", 94)
}
