package replica

import (
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
)

// Messages as a reader of a transcript sees them. An epoch is the name of its owner and
// its counter; #3 is a state with the sequence 3.

var statuses = map[peer.ReplyStatus]string{
	peer.NotOwner: "not the owner", peer.Alive: "the owner is alive", peer.Overloaded: "not acknowledged in time",
	peer.Contested: "contested",
}

var events = map[Event]string{
	Takeover: "has taken over", Renewal: "has renewed its epoch", Handoff: "has handed over", Reopened: "has reopened",
	Fenced: "is fenced, and stops", Merged: "has merged what the former owner had", Recovered: "starts from the best copy",
	Emptied: "starts empty", Raised: "the policy bounds what may be answered now", Broken: "has broken",
	GivenUp: "is given up",
}

var roles = []string{"nothing", "a copy", "an heir's copy", "a sealed state", "the ownership"}

func (s *story) epoch(e peer.Epoch) string {
	if e.Instance == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d", s.named(e.Instance), e.Counter)
}

func (s *story) announces(a *peer.Announce) string {
	return fmt.Sprintf("the owner is %s, its heir %s", s.epoch(a.Epoch), s.named(a.Heir))
}

func (s *story) claims(c *peer.Claim) string {
	e := s.epoch(peer.Epoch{Counter: c.Counter, Instance: c.For})
	switch {
	case c.Kind == peer.Ask:
		return "what do you hold?"
	case c.Counter == 0 && c.Kind == peer.LastResort:
		return "your copy is the best: claim"
	case c.Counter == 0:
		return "I own no more: take over"
	}
	return "claim " + e + ", " + map[peer.ClaimKind]string{
		peer.Takeover: "to take over", peer.LastResort: "as last resort", peer.Renew: "to renew",
		peer.Transfer: "to hand over", peer.Reopen: "to reopen",
	}[c.Kind]
}

func (s *story) answers(a *peer.Answer) string {
	text := "I hold " + roles[a.Role]
	if a.Role != peer.Nothing {
		text += fmt.Sprintf(" %s #%d", s.epoch(a.Epoch), a.Seq)
	}
	text += ", and know " + s.epoch(a.Owner)
	if a.Fresh {
		text = "I have just started, " + text
	}
	if a.Granted {
		text = "granted; " + text
	}
	return text
}

func (s *story) revokes(r *peer.Revoke) string {
	text := "you are heir no more"
	if r.Appointment == 0 {
		text = "your copy is not needed"
	} else if r.Drop {
		text += ", and your copy is not needed"
	}
	return text
}

func (s *story) batches(b *peer.Batch, keys int) string {
	what := fmt.Sprintf("%d keys", keys)
	if keys == 1 {
		what = "1 key"
	}
	var text string
	switch b.Kind {
	case peer.Snapshot:
		text = fmt.Sprintf("snapshot %s #%d, %s", s.epoch(b.Epoch), b.Seq, what)
	case peer.Push:
		text = fmt.Sprintf("push %s #%d, %s", s.epoch(b.Epoch), b.Seq, what)
	case peer.Handover:
		return fmt.Sprintf("handover to %s: %s #%d..#%d, %s", s.epoch(b.Next), s.epoch(b.Epoch), b.Base, b.Seq, what)
	default:
		text = fmt.Sprintf("changes %s #%d..#%d, %s", s.epoch(b.Epoch), b.Base, b.Seq, what)
	}
	if b.Appointment != 0 {
		text += fmt.Sprintf("; appointment %d", b.Appointment)
	}
	return text
}

func (s *story) acks(a *peer.Ack) string {
	switch a.Status {
	case peer.Gap:
		return fmt.Sprintf("I have #%d only", a.Seq)
	case peer.Refused:
		return "refused"
	case peer.Fenced:
		return "no: the owner is " + s.epoch(a.Owner)
	case peer.Revoked:
		return fmt.Sprintf("appointment %d is void", a.Appointment)
	case peer.Merged:
		return "merged"
	}
	if a.Appointment != 0 {
		return fmt.Sprintf("I have #%d, as heir by appointment %d", a.Seq, a.Appointment)
	}
	return fmt.Sprintf("I have #%d", a.Seq)
}
