package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// sendReply sends a decision to the member that asked.
func (c *Core) sendReply(t *turn, r route.ReplyTo, answer, idle *limiter.Decision) {
	out := peer.Reply{
		ID: r.ID, Heir: answer.Source == limiter.SourceHeir, Idle: idle != nil, Results: uint16(answer.Len()),
		Receipt: mesh.Receipt(answer.Receipt), Unnamed: r.Unnamed, Provisional: r.Provisional,
	}
	if r.Rules == nil && r.Reasons == nil {
		t.Out.Reply(r.To, out, answer, idle)
		return
	}
	var reasons *peer.Explanation
	if r.Reasons != nil {
		x := reasonsOut(r.ID, r.Reasons)
		reasons = &x
	}
	t.Out.ReplyWith(r.To, out, answer, idle, r.Rules, reasons, sizeOf(r.Reasons))
}

func (c *Core) deliverReplies(t *turn, f *peer.Frame) {
	rest := f.Results
	from := ""
	if m := c.view.Load().Member(f.From); m != nil && len(f.Replies) > 0 {
		from = m.Name
	}
	var may credible
	if len(f.Replies) > 0 {
		may = c.credible(t.Now)
	}
	for i := range f.Replies {
		r := &f.Replies[i]
		n := int(r.Results)
		if r.Idle {
			n *= 2
		}
		if n > len(rest) {
			return
		}
		results := rest[:n]
		rest = rest[n:]
		call := c.calls.Find(r.ID)
		if call == nil {
			continue
		}
		if !may.reply(r) || !may.results(results) {
			c.distrust(f.From, "a reply")
			continue
		}
		call.Reply(&t.Turn, f, from, r, results)
	}
}
