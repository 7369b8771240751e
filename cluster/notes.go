package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/peer"
)

// Bounds of notes.
const (
	// MaxNoteBytes is the longest question, answer or news.
	MaxNoteBytes = peer.MaxNoteBytes

	noteQueue   = 256 // notes of other members that wait to be read; further ones are dropped
	maxPending  = 256 // questions that wait for answers
	answerers   = 2   // goroutines that read notes
	expelledWhy = "it is expelled"
)

// Notes lets a program ask the programs of the other members, and tell them news, over the
// connections that members have anyway. Set its fields, and give it to [Config.Notes]. Its methods are
// safe for concurrent use; before the member is open, and after it has closed, no member answers.
type Notes struct {
	// Answer returns the answer to a question of another member, at most MaxNoteBytes; nil: no answer.
	// It is called from a few goroutines, and must be quick. Default nil: this node answers nothing.
	Answer func(question []byte) []byte
	// Told receives news of another member, by its name. Default nil: they are ignored.
	Told func(from string, news []byte)
	// Met is called when this node has got a connection to another member; default nil. It is the
	// time to tell that one what it may have missed.
	Met func(member string)

	member  atomic.Pointer[member]
	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan<- NoteAnswer
	came    chan noteOf
	ended   chan struct{}
}

type noteOf struct {
	from peer.Instance
	note peer.Note // of kind met: a connection
}

// met is a kind of note that is not on the wire.
const met peer.NoteKind = 255

// NoteAnswer is what a member answered.
type NoteAnswer struct {
	// Member is its name.
	Member string
	// Answer is nil if there was none; Why then says why.
	Answer []byte
	Why    string
}

// errNoMember is returned by [Notes.Ask] and [Notes.Tell] of a node that is in no cluster.
var errNoMember = errors.New("weir: the node is in no cluster, or is closed")

// open binds the notes to a member.
func (n *Notes) open(m *member) {
	n.came, n.ended, n.pending = make(chan noteOf, noteQueue), m.ended, map[uint64]chan<- NoteAnswer{}
	n.member.Store(m)
	for range answerers {
		m.serving.Go(func() {
			for {
				select {
				case <-m.ended:
					return
				case x := <-n.came:
					n.read(m, x)
				}
			}
		})
	}
}

// take receives a note of the core, and must not wait. n may be nil.
func (n *Notes) take(from peer.Instance, note peer.Note) {
	if n == nil || n.member.Load() == nil {
		return
	}
	if note.Kind == peer.Answered {
		n.answered(from, note)
		return
	}
	select {
	case n.came <- noteOf{from, note}:
	default: // whoever asks gets no answer, and says so
	}
}

func (n *Notes) read(m *member, x noteOf) {
	defer m.guard.Recover(guard.Cluster, nil)
	name := nameOf(m, x.from)
	if name == "" {
		return // not a member, or not any more
	}
	switch x.note.Kind {
	case peer.Question:
		if n.Answer == nil {
			return
		}
		if text := n.Answer(x.note.Text); text != nil && len(text) <= MaxNoteBytes {
			core.SendNote(m.core, x.from, peer.Note{Kind: peer.Answered, ID: x.note.ID, Text: text})
		}
	case peer.News:
		if n.Told != nil {
			n.Told(name, x.note.Text)
		}
	case met:
		if n.Met != nil {
			n.Met(name)
		}
	}
}

// answered hands an answer to the question that waits for it, if it is of the member that was asked.
func (n *Notes) answered(from peer.Instance, note peer.Note) {
	m := n.member.Load()
	n.mu.Lock()
	to := n.pending[note.ID]
	n.mu.Unlock()
	if to == nil {
		return
	}
	if name := nameOf(m, from); name != "" {
		select {
		case to <- NoteAnswer{Member: name, Answer: note.Text}:
		default: // more answers than members were asked
		}
	}
}

// Ask asks all other members a question, and returns what each answered before the context ended, ordered by name.
// Members that are dead, or not in reach, are among them, with the reason.
func (n *Notes) Ask(ctx context.Context, question []byte) ([]NoteAnswer, error) {
	m := n.member.Load()
	if m == nil || m.Closed.Load() {
		return nil, errNoMember
	}
	all := m.Members()
	answers := make(chan NoteAnswer, len(all)+1)
	id, err := n.begin(answers)
	if err != nil {
		return nil, err
	}
	defer n.end(id)
	out, waiting := []NoteAnswer(nil), map[string]int{}
	for i := range all {
		o := &all[i]
		if o.Self {
			continue
		}
		a := NoteAnswer{Member: o.Name}
		switch o.State {
		case peer.Dead.String():
			a.Why = "it is dead"
		case stateExpelled:
			a.Why = expelledWhy
		default:
			if a.Why = "there is no connection to it"; n.send(m, o.Name, peer.Note{ID: id, Text: question}) {
				a.Why = "it did not answer in time"
				waiting[o.Name] = len(out)
			}
		}
		out = append(out, a)
	}
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			if at, asked := waiting[a.Member]; asked {
				out[at] = a
				delete(waiting, a.Member)
			}
		case <-ctx.Done():
			waiting = nil
		case <-m.ended:
			return nil, errNoMember
		}
	}
	slices.SortFunc(out, func(a, b NoteAnswer) int { return strings.Compare(a.Member, b.Member) })
	return out, nil
}

func (n *Notes) begin(answers chan<- NoteAnswer) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) >= maxPending {
		return 0, errors.New("weir: too many questions to other members are open: ask again in a second")
	}
	n.next++
	n.pending[n.next] = answers
	return n.next, nil
}

func (n *Notes) end(id uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pending, id)
}

// Tell tells the named members in reach some news, all of them if none is named. Members that are not in reach do not
// get it.
func (n *Notes) Tell(news []byte, names ...string) {
	m := n.member.Load()
	if m == nil || m.Closed.Load() {
		return
	}
	for _, o := range m.core.View().Members {
		if o.Name != m.config.Name && (len(names) == 0 || slices.Contains(names, o.Name)) {
			core.SendNote(m.core, o.Instance, peer.Note{Kind: peer.News, Text: news})
		}
	}
}

// send sends a note to a member by its name.
func (n *Notes) send(m *member, name string, note peer.Note) bool {
	for _, o := range m.core.View().Members {
		if o.Name == name {
			return core.SendNote(m.core, o.Instance, note)
		}
	}
	return false
}

// watch calls Met for each member to which a connection is new. It ends with the member.
func (n *Notes) watch(m *member) {
	const every = 250 * time.Millisecond
	up := map[peer.Instance]bool{}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-m.ended:
			return
		case <-tick.C:
		}
		now := map[peer.Instance]bool{}
		for _, o := range m.core.View().Members {
			if o.Name == m.config.Name || !m.core.Reaches(o.Instance) {
				continue
			}
			if now[o.Instance] = true; !up[o.Instance] {
				n.take(o.Instance, peer.Note{Kind: met})
			}
		}
		up = now
	}
}

// nameOf returns the name of a member in view, empty if it is in none.
func nameOf(m *member, i peer.Instance) string {
	if o := m.core.View().Member(i); o != nil {
		return o.Name
	}
	return ""
}
