package weir

import (
	"cmp"
	"context"
	"fmt"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// sealKeyOf returns the key of receipts for clients. Nodes that share counters have one key,
// if they have a secret. Members of a cluster have another one than nodes with a backend,
// which would read a member's epoch as what a policy counted. A node on its own has one
// that nobody else has, since what another node admitted is none of its charges.
func sealKeyOf(c *Config) sealKey {
	switch {
	case len(c.Secret) == 0 || c.Cluster == nil && c.Backend == nil:
		return randomSealKey()
	case c.Cluster != nil:
		return newSealKey(c.Secret, "cluster", c.ClusterName)
	default:
		return newSealKey(c.Secret, "backend", c.ClusterName)
	}
}

// Refund takes back the charge that a receipt names. The receipt comes from a decision
// of the same request. A window or log is refunded exactly, and so is a bucket that nothing else
// was charged to since. Otherwise a bucket does not get back what may have leaked of the charge until
// the last one since, and with drip: interval until now. So a refund never admits more than if the
// charge had not been made.
// The hit that opened a window under align: first_hit is taken back only if it is the
// only one in the window. What is taken back stays a hit: a window may begin with it once a reservation that
// opened it is cancelled.
//
// A receipt is valid once, and only its recipient may use it: a second use takes back
// charges of others. It is void, and Refund does nothing, if the cost or the names of the
// limits of the request have changed, or if its keys were reset since. It is also void if a
// limit was replaced by one that counts in another way (a higher number alone does not
// count), and then put back. While the replacement is in force, the change is not always
// noticed, so do not refund after a reload that changed a limit. A receipt may also be void
// if more than 16 other keys of its partition were reset. One key in 2,042 is in the same
// partition.
//
// A receipt of [Node.SealReceipt] is verified instead. Its second use does nothing. If it is
// forged, or belongs to another request, cost or limit, the error wraps [ErrInvalid].
//
// With the receipt [limiter.Credit], Refund subtracts the cost of the request from what its
// limits count now, down to 0 and regardless of who was charged. What a rule's policy counted
// stays.
//
// In a cluster each owner's part of a charge is taken back by itself. A part stays charged if
// one of its keys has changed owners since. If no member that holds the keys answers within
// the cluster's deadline, the error wraps [ErrUnanswered]. If the context ends first, it wraps
// the context's error. Either error states whether the refund may have been made.
func (n *Node) Refund(ctx context.Context, r Request, receipt Receipt) error {
	q, err := n.resolve(ctx, &r)
	if err != nil {
		return err
	}
	for _, set := range q.Set.Charged(&r) {
		if n.chargedBy(set, &r, receipt) { // before an operator decided about the user
			if q, err = resolveBy(set, &r); err != nil {
				return err
			}
			break
		}
	}
	if others := q.Set.Alternatives(&r); others != nil {
		if q, receipt, err = n.ofAlternative(others, &r, receipt); err != nil {
			return err
		}
	} else if arith.Fields(&receipt).IsCredit() {
		receipt = q.Charge.Credit()
	}
	if receipt.Sealed() != "" {
		if receipt, err = n.seal.open(receipt.Sealed(), &q.Charge); err != nil {
			return err
		}
	}
	return n.decider.Refund(ctx, q, receipt)
}

// chargedBy reports whether a receipt is of a charge of a request by a set of rules.
func (n *Node) chargedBy(set *rules.Set, r *Request, receipt Receipt) bool {
	if others := set.Alternatives(r); others != nil {
		q, own, err := n.ofAlternative(others, r, receipt)
		return err == nil && q.Charge.Fits(own)
	}
	q, err := resolveBy(set, r)
	if err == nil && receipt.Sealed() != "" {
		receipt, err = n.seal.open(receipt.Sealed(), &q.Charge)
	}
	return err == nil && q.Charge.Fits(receipt)
}

// SealReceipt returns the receipt of a decision in a form that can be given to clients who
// are not trusted with more, as a text: [limiter.Receipt.Sealed]. They cannot make or change one, or use
// it for another request, and its second use does nothing, at any member of a cluster. It
// is void ten minutes after the check.
//
// The text is empty if nothing was charged, if a policy decided because the holders of the
// counters could not be asked, or if the rules have changed since. Members of a cluster, and
// nodes with one backend, open each other's receipts if they have the same [Config.Secret]; a
// node without one opens only its own.
func (n *Node) SealReceipt(r *Request, d *Decision) Receipt {
	_, remote := n.decider.(*remote)
	// what a policy counted beside the backend
	if of := arith.Fields(&d.Receipt); of.Charged == 0 || d.Source.ByPolicy() || remote && of.Epoch != 0 {
		return Receipt{}
	}
	var c arith.Charge
	set := n.node.Rules.Load()
	if others := set.Alternatives(r); others != nil {
		q, receipt, err := n.ofAlternative(others, r, d.Receipt)
		if err != nil || !q.Charge.Fits(receipt) {
			return Receipt{}
		}
		return limiter.SealedReceipt(n.seal.seal(receipt, &q.Charge))
	}
	if _, err := set.Resolve(r, &c); err != nil || !c.Fits(d.Receipt) {
		return Receipt{}
	}
	return limiter.SealedReceipt(n.seal.seal(d.Receipt, &c))
}

// ofAlternative returns the alternative that a receipt charged, with the receipt as whatever charged it has issued it.
// A receipt that fits none is returned with the first.
func (n *Node) ofAlternative(sets []*rules.Set, r *Request, receipt Receipt) (*engine.Question, Receipt, error) {
	if arith.Fields(&receipt).IsCredit() {
		return nil, receipt, fmt.Errorf("%w: a credit does not say which alternative of the rule it is for: refund by the "+
			"receipt of the check", ErrInvalid)
	}
	var first *engine.Question
	var failed error // of an alternative that is not the one, unless another is
	for _, set := range sets {
		q, own := &engine.Question{Set: set, Request: r}, receipt
		if _, err := set.Resolve(r, &q.Charge); err != nil {
			failed = err
			continue
		}
		first = cmp.Or(first, q)
		if receipt.Sealed() != "" {
			opened, err := n.seal.open(receipt.Sealed(), &q.Charge)
			if err == nil {
				return q, opened, nil
			}
			failed = err
			continue
		}
		if set.Mark(&own); q.Charge.Fits(own) {
			return q, own, nil
		}
	}
	return first, receipt, failed
}
