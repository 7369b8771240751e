package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

const (
	// MaxNoteBytes is the longest question, answer or news.
	MaxNoteBytes = peer.MaxNoteBytes

	maxPending = 256 // questions that wait for answers
	answerers  = 2   // goroutines that read notes
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
	pending map[uint64]*asking // by their numbers, which nobody can guess
	inbox   *inbox
}

// asking is a question that waits for answers: one of each member that was asked.
type asking struct {
	of map[peer.Instance]string // their names
	to chan NoteAnswer          // has room for all of them
}

// met is a kind of note that is not on the wire: there is a connection.
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
func (n *Notes) open(m *member) (err error) {
	if n.inbox, err = newInbox(); err != nil {
		return err
	}
	n.pending = map[uint64]*asking{}
	n.member.Store(m)
	for range answerers {
		m.serving.Go(func() {
			for {
				select {
				case <-m.ended:
					return
				case <-n.inbox.came:
				}
				for from, note := n.inbox.take(); from != nil && !m.Closed.Load(); from, note = n.inbox.take() {
					n.read(m, from.instance, note)
					n.inbox.done(from)
				}
			}
		})
	}
	return nil
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
	if note.Kind <= peer.News && n.member.Load().nameOf(from) != "" {
		n.inbox.put(from, note, limiter.TickOf(time.Now()))
	}
}

func (n *Notes) read(m *member, from peer.Instance, note peer.Note) {
	defer m.guard.Recover(guard.Cluster, nil)
	name := m.nameOf(from)
	if name == "" {
		return // not a member any more
	}
	switch note.Kind {
	case peer.Question:
		if n.Answer == nil {
			return
		}
		if text := n.Answer(note.Text); text != nil && len(text) <= MaxNoteBytes {
			m.core.SendNote(from, peer.Note{Kind: peer.Answered, ID: note.ID, Text: text})
		}
	case peer.News:
		if n.Told != nil {
			n.Told(name, note.Text)
		}
	case met:
		if n.Met != nil {
			n.Met(name)
		}
	}
}

// answered hands an answer to the question that waits for it, if it is the first of a member that was asked.
func (n *Notes) answered(from peer.Instance, note peer.Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.pending[note.ID]
	if q == nil || q.of[from] == "" {
		return
	}
	q.to <- NoteAnswer{Member: q.of[from], Answer: note.Text}
	delete(q.of, from)
}

// Ask asks all other members a question, and returns what each answered before the context ended, ordered by name.
// Members that are dead, or not in reach, are among them, with the reason.
func (n *Notes) Ask(ctx context.Context, question []byte) ([]NoteAnswer, error) {
	m := n.member.Load()
	if m == nil || m.Closed.Load() {
		return nil, errNoMember
	}
	out, waiting := n.others(m), map[string]int{}
	id, q, err := n.begin(len(out))
	if err != nil {
		return nil, err
	}
	defer n.end(id)
	for i := range out {
		a := &out[i]
		if a.Why != "" {
			continue
		}
		if a.Why = "there is no connection to it"; n.ask(m, q, a.Member, peer.Note{ID: id, Text: question}) {
			a.Why = "it did not answer in time"
			waiting[a.Member] = i
		}
	}
	for len(waiting) > 0 {
		select {
		case a := <-q.to:
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
	return out, nil
}

// others returns the other members, ordered by name, with why they cannot answer, if it is known.
func (*Notes) others(m *member) (out []NoteAnswer) {
	m.census.mu.Lock()
	all := m.census.members()
	m.census.mu.Unlock()
	for i := range all {
		o := &all[i]
		if o.Name == m.config.Name {
			continue
		}
		a := NoteAnswer{Member: o.Name}
		if o.State == peer.Dead {
			a.Why = "it is dead"
		}
		out = append(out, a)
	}
	for _, name := range m.expelled() {
		out = append(out, NoteAnswer{Member: name, Why: "it is expelled"})
	}
	slices.SortStableFunc(out, func(a, b NoteAnswer) int { return strings.Compare(a.Member, b.Member) })
	return out
}

func (n *Notes) begin(members int) (uint64, *asking, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) >= maxPending {
		return 0, nil, errors.New("weir: too many questions to other members are open: ask again in a second")
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // which never fails
	id, q := binary.LittleEndian.Uint64(b[:]), &asking{map[peer.Instance]string{}, make(chan NoteAnswer, members)}
	n.pending[id] = q
	return id, q, nil
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
			m.core.SendNote(o.Instance, peer.Note{Kind: peer.News, Text: news})
		}
	}
}

// ask sends a question to a member by its name, and awaits its answer.
func (n *Notes) ask(m *member, q *asking, name string, note peer.Note) bool {
	for _, o := range m.core.View().Members {
		if o.Name != name {
			continue
		}
		n.mu.Lock()
		q.of[o.Instance] = name
		n.mu.Unlock()
		return m.core.SendNote(o.Instance, note)
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
		now, is := map[peer.Instance]bool{}, map[peer.Instance]bool{}
		for _, o := range m.core.View().Members {
			is[o.Instance] = true
			if o.Name == m.config.Name || !m.core.Reaches(o.Instance) {
				continue
			}
			if now[o.Instance] = true; !up[o.Instance] {
				n.inbox.put(o.Instance, peer.Note{Kind: met}, limiter.TickOf(time.Now()))
			}
		}
		n.inbox.keep(is)
		up = now
	}
}

// nameOf returns the name of a member in view, empty if it is in none.
func (m *member) nameOf(i peer.Instance) string {
	if o := m.core.View().Member(i); o != nil {
		return o.Name
	}
	return ""
}
