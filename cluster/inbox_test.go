package cluster

import (
	"bytes"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// TestOneMemberDoesNotCrowdOutOthers: the notes of a member that floods are dropped beyond its own bounds, and those of
// another are read in turn with them.
func TestOneMemberDoesNotCrowdOutOthers(t *testing.T) {
	var tick limiter.Tick
	b, err := newInbox()
	if err != nil {
		t.Fatal(err)
	}
	evil, good := peer.Instance(1), peer.Instance(2)
	taken := 0
	for range 10 * noteQueue {
		if b.put(evil, peer.Note{}, tick) {
			taken++
		}
	}
	if taken != noteQueue {
		t.Errorf("%d notes of one member wait, want %d", taken, noteQueue)
	}
	for i := range 3 {
		if !b.put(good, peer.Note{ID: uint64(i + 1)}, tick) {
			t.Fatal("a note of another member is dropped")
		}
	}
	read := 0
	for i := range 6 {
		from, n := b.take()
		if from == nil || from.instance == good && n.ID != uint64(i/2+1) {
			t.Fatalf("note %d is %+v of %v", i, n, from)
		}
		if from.instance == good {
			read++
		}
		b.done(from)
	}
	if read != 3 {
		t.Errorf("of six notes that are read %d are of the member with few, want 3", read)
	}
	for from, _ := b.take(); from != nil; from, _ = b.take() {
		b.put(evil, peer.Note{}, tick)
		b.done(from)
	}
	if b.put(evil, peer.Note{}, tick) {
		t.Error("a burst has no end")
	}
	if tick = limiter.Second; !b.put(evil, peer.Note{}, tick) {
		t.Error("a second later none is taken")
	}
	if from, _ := b.take(); from != nil {
		b.done(from)
	}
	text := bytes.Repeat([]byte("x"), MaxNoteBytes)
	for tick, taken = tick+10*limiter.Second, 0; b.put(good, peer.Note{Text: text}, tick); taken++ {
	}
	if taken*len(text) > noteBytes {
		t.Errorf("%d bytes of one member wait", taken*len(text))
	}
	b.keep(map[peer.Instance]bool{evil: true})
	if from, _ := b.take(); from != nil || len(b.of) != 1 {
		t.Error("the notes of one that is no member any more are kept")
	}
}

// TestOneNoteOfAMemberIsReadAtATime: questions that take long to answer leave the other reader to other members.
func TestOneNoteOfAMemberIsReadAtATime(t *testing.T) {
	b, err := newInbox()
	if err != nil {
		t.Fatal(err)
	}
	evil, good := peer.Instance(1), peer.Instance(2)
	b.put(evil, peer.Note{ID: 1}, 0)
	b.put(evil, peer.Note{ID: 2}, 0)
	slow, _ := b.take()
	b.put(evil, peer.Note{ID: 3}, 0)
	if from, n := b.take(); from != nil {
		t.Fatalf("note %d of a member is read beside another of it", n.ID)
	}
	b.put(good, peer.Note{ID: 1}, 0)
	from, _ := b.take()
	if from == nil || from.instance != good {
		t.Fatalf("the note of another member is not read meanwhile: %+v", from)
	}
	b.done(from)
	for id := uint64(2); id <= 3; id++ {
		b.done(slow)
		if from, n := b.take(); from != slow || n.ID != id {
			t.Errorf("then comes note %d of %+v, want %d", n.ID, from, id)
		}
	}
	b.put(evil, peer.Note{ID: 4}, 0)
	b.keep(map[peer.Instance]bool{good: true})
	b.put(evil, peer.Note{ID: 5}, 0)
	b.done(slow) // of before it went
	if from, n := b.take(); from == slow || n.ID != 5 {
		t.Errorf("of one that went and came back comes %d", n.ID)
	}
	if from, _ := b.take(); from != nil {
		t.Error("it has another place")
	}
}

// TestOneMemberDoesNotAnswerForOthers: of each member that was asked the first answer counts, and no other's.
func TestOneMemberDoesNotAnswerForOthers(t *testing.T) {
	n := &Notes{pending: map[uint64]*asking{}}
	first, q, err := n.begin(2)
	if err != nil {
		t.Fatal(err)
	}
	if second, _, _ := n.begin(2); first < 1<<20 && second < 1<<20 {
		t.Errorf("the numbers %d and %d can be guessed", first, second)
	}
	evil, good, stranger := peer.Instance(1), peer.Instance(2), peer.Instance(3)
	q.of[evil], q.of[good] = "evil", "good"
	for range 10 {
		n.answered(evil, peer.Note{ID: first, Text: []byte("x")})
		n.answered(stranger, peer.Note{ID: first, Text: []byte("x")})
	}
	n.answered(good, peer.Note{ID: first, Text: []byte("y")})
	if a, b := <-q.to, <-q.to; a.Member != "evil" || b.Member != "good" || len(q.to) != 0 {
		t.Errorf("the answers are %+v and %+v, and %d more", a, b, len(q.to))
	}
	n.end(first)
	n.answered(good, peer.Note{ID: first})
}
