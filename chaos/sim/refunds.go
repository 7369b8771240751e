package sim

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// receipt is what a client needs to give an admission back.
type receipt struct {
	of      []*key
	keys    []arith.Key
	receipt limiter.Receipt
}

// keep keeps the receipt of a check, if the client may give it back: one receipt for all of
// its keys.
func (a *asking) keep() {
	if a.once != nil || !a.answer.Allowed || a.answer.Source.ByPolicy() || overflows(a.answer) {
		return
	}
	r := receipt{of: a.keys, receipt: a.answer.Receipt}
	for i, about := range a.keys {
		if !about.refunds {
			return
		}
		r.keys = append(r.keys, *a.charge.Key(i))
	}
	a.keys[0].receipts = append(a.keys[0].receipts, r)
}

// refund has a client give back an admission.
func (w *World) refund(k *key, n *Node) {
	i := w.rng.IntN(len(k.receipts))
	r := k.receipts[i]
	k.receipts = slices.Delete(k.receipts, i, i+1)
	for i, about := range r.of {
		about.refunded += int(r.keys[i].Cost)
	}
	w.logf("%s is asked to refund %d of %s", n.name, r.keys[0].Cost, k.rule.Name)
	w.refundAgain(&r)
	n.refund(&r)
}

// refund asks a node to take back what a receipt names.
func (n *Node) refund(r *receipt) {
	var c arith.Charge
	for i := range r.keys {
		c.Add(r.keys[i])
	}
	of := r.receipt
	n.do(func() { n.core.Refund(&c, of, func(route.Outcome) {}) })
}
