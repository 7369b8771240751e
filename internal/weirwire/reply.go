package weirwire

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Reply is the reply to a message of a stream. It is used again for the next one.
type Reply struct {
	weirv1.DecisionColumns
	every weirv1.LimitColumns
	names dictionary
}

// Fill writes decisions into the reply. failed lists those that were not decided, ascending; errs has their errors.
func (p *Reply) Fill(decisions []limiter.Decision, failed []int, errs []error) {
	m, n := &p.DecisionColumns, len(decisions)
	p.names.clear()
	m.Error, m.EveryLimit = nil, nil
	m.Flags, m.Sources = sized(m.Flags, n), sized(m.Sources, n)
	m.Remaining, m.LimitRefs = sized(m.Remaining, n), sized(m.LimitRefs, n)
	m.ResetAfterUs, m.RetryAfterUs = sized(m.ResetAfterUs, n), sized(m.RetryAfterUs, n)
	m.InForce = sized(m.InForce, n)
	flags, sources, refs := m.Flags[:n], m.Sources[:n], m.LimitRefs[:n]
	remaining, resets, retryAfter, inForce := m.Remaining[:n], m.ResetAfterUs[:n], m.RetryAfterUs[:n], m.InForce[:n]
	retries, elsewhere, shares := false, false, false
	m.Denials = m.Denials[:0]
	for i := range n {
		d := &decisions[i]
		is := flag(d.Allowed, weirv1.DecisionFlag_DECISION_FLAG_ALLOWED) |
			flag(d.Never, weirv1.DecisionFlag_DECISION_FLAG_NEVER) |
			flag(d.ShadowDenied, weirv1.DecisionFlag_DECISION_FLAG_SHADOW_DENIED) |
			flag(d.Repeated, weirv1.DecisionFlag_DECISION_FLAG_REPEATED) |
			flag(d.Overridden, weirv1.DecisionFlag_DECISION_FLAG_OVERRIDDEN)
		sources[i], retryAfter[i] = byte(d.Source), 0
		elsewhere = elsewhere || d.Source != limiter.SourceOwner
		if d.Source == limiter.SourceRule {
			m.Denials = denied(m.Denials, i, d)
		}
		if d.RetryAfter != 0 {
			retryAfter[i], retries = int64(limiter.Span(d.RetryAfter)), true
		}
		if l := decisive(d); l != nil {
			is |= flag(l.Blocked, weirv1.DecisionFlag_DECISION_FLAG_BLOCKED) |
				flag(l.Overflow, weirv1.DecisionFlag_DECISION_FLAG_OVERFLOW)
			remaining[i], resets[i], inForce[i] = l.Remaining, int64(limiter.Span(l.ResetAfter)), l.InForce
			shares = shares || l.InForce != 0
			refs[i] = 1 + p.names.limit(l)
		} else {
			remaining[i], resets[i], inForce[i], refs[i] = math.MaxUint32, 0, 0, 0
		}
		flags[i] = is
	}
	if !retries {
		m.RetryAfterUs = m.RetryAfterUs[:0]
	}
	if !elsewhere {
		m.Sources = m.Sources[:0]
	}
	if !shares {
		m.InForce = m.InForce[:0]
	}
	p.fillErrors(failed, errs)
	m.Limits = p.names.infos[:p.names.used]
}

// Append encodes the reply. The protobuf library encodes all but the columns of numbers, for which it takes more than
// twice as long. After an error nothing is appended.
func (p *Reply) Append(dst []byte) ([]byte, error) {
	m := &p.DecisionColumns
	remaining, resets, retries, refs, inForce := m.Remaining, m.ResetAfterUs, m.RetryAfterUs, m.LimitRefs, m.InForce
	out := appendPacked(dst, columnsRemaining, remaining)
	out = appendPacked(out, columnsResetAfter, resets)
	out = appendPacked(out, columnsRetryAfter, retries)
	out = appendPacked(out, columnsLimitRefs, refs)
	out = appendPacked(out, columnsInForce, inForce)
	m.Remaining, m.ResetAfterUs, m.RetryAfterUs, m.LimitRefs, m.InForce = nil, nil, nil, nil, nil
	out, err := proto.MarshalOptions{}.MarshalAppend(out, m)
	m.Remaining, m.ResetAfterUs, m.RetryAfterUs, m.LimitRefs, m.InForce = remaining, resets, retries, refs, inForce
	return out, err
}

// Refuse makes the reply an error for the whole message.
func (p *Reply) Refuse(err error) {
	p.Reset()
	p.Error = CheckError(err)
}

// denied adds a check to the denials by rules. Consecutive checks with the same one share an entry.
func denied(all []*weirv1.RuleDenial, check int, d *limiter.Decision) []*weirv1.RuleDenial {
	deny := d.Remarks().Deny
	if deny == nil { // of a node of another version, through its client
		return all
	}
	if last := len(all) - 1; last >= 0 && all[last].Rule == d.Rule && all[last].Status == uint32(deny.Status) &&
		all[last].Reason == deny.Reason {
		all[last].Checks = append(all[last].Checks, uint32(check))
		return all
	}
	return append(all, &weirv1.RuleDenial{Rule: d.Rule, Status: uint32(deny.Status), Reason: deny.Reason,
		Checks: []uint32{uint32(check)}})
}

func flag(set bool, f weirv1.DecisionFlag) byte {
	if set {
		return byte(f)
	}
	return 0
}

// decisive returns the limit that represents a decision: the one that denied, or the
// one with the least remaining; shadow limits come last.
func decisive(d *limiter.Decision) *limiter.LimitDecision {
	if b := d.BlockedBy(); b != nil {
		return b
	}
	var best *limiter.LimitDecision
	for i := range d.Len() {
		l := d.Limit(i)
		switch {
		case best == nil, best.Rule.Shadow && !l.Rule.Shadow:
			best = l
		case best.Rule.Shadow == l.Rule.Shadow && l.Remaining < best.Remaining:
			best = l
		}
	}
	return best
}

// fillErrors reports the checks that were not decided. Consecutive checks with the same
// error share one entry.
func (p *Reply) fillErrors(failed []int, errs []error) {
	m := &p.DecisionColumns
	m.Errors = m.Errors[:0]
	for i, at := range failed {
		m.Flags[at], m.Remaining[at] = byte(weirv1.DecisionFlag_DECISION_FLAG_ERROR), 0
		text := errorText(errs[i])
		if last := len(m.Errors) - 1; last >= 0 && m.Errors[last].Message == text {
			m.Errors[last].Checks = append(m.Errors[last].Checks, uint32(at))
			continue
		}
		m.Errors = append(m.Errors, &weirv1.ColumnsError{
			Code: uint32(overgrpc.Code(errs[i])), Message: text, Checks: []uint32{uint32(at)},
		})
	}
}

// FillEvery adds the result of every limit of the requests that were decided.
func (p *Reply) FillEvery(by Names, requests []limiter.Request, decisions []limiter.Decision) {
	m, n := &p.every, len(decisions)
	total := 0
	for i := range n {
		total += decisions[i].Len()
	}
	m.Counts, m.RuleRefs = sized(m.Counts, n), sized(m.RuleRefs, n)
	m.LimitIndexes, m.Flags, m.Keys = sized(m.LimitIndexes, total), sized(m.Flags, total), sized(m.Keys, total)
	m.Remaining, m.Costs, m.KeyIndexes = sized(m.Remaining, total), sized(m.Costs, total), sized(m.KeyIndexes, total)
	m.ResetAfterUs, m.RetryAfterUs = sized(m.ResetAfterUs, total), sized(m.RetryAfterUs, total)
	m.InForce = sized(m.InForce, total)
	m.DrawnByRefs, m.ZoneDefaultRefs = sized(m.DrawnByRefs, n), sized(m.ZoneDefaultRefs, n)
	at, shares, drawn, zones := 0, false, false, false
	for i := range n {
		d := &decisions[i]
		m.Counts[i], m.RuleRefs[i] = uint32(d.Len()), p.names.rule(d.Rule)
		drawnBy, zone := remarks(by, &requests[i], d)
		m.DrawnByRefs[i], m.ZoneDefaultRefs[i] = p.names.rule(drawnBy), p.names.rule(zone)
		drawn, zones = drawn || drawnBy != "", zones || zone != ""
		for j := range d.Len() {
			l := d.Limit(j)
			m.LimitIndexes[at], m.Keys[at] = p.names.limit(l), by.KeyName(&requests[i], l)
			m.Flags[at] = flag(l.Allowed, weirv1.DecisionFlag_DECISION_FLAG_ALLOWED) |
				flag(l.Never, weirv1.DecisionFlag_DECISION_FLAG_NEVER) |
				flag(l.Blocked, weirv1.DecisionFlag_DECISION_FLAG_BLOCKED) |
				flag(l.Overflow, weirv1.DecisionFlag_DECISION_FLAG_OVERFLOW)
			m.Remaining[at], m.Costs[at], m.KeyIndexes[at] = l.Remaining, l.Cost, uint32(l.KeyIndex)
			m.ResetAfterUs[at], m.RetryAfterUs[at] = int64(limiter.Span(l.ResetAfter)), int64(limiter.Span(l.RetryAfter))
			m.InForce[at], shares = l.InForce, shares || l.InForce != 0
			at++
		}
	}
	if !shares {
		m.InForce = m.InForce[:0]
	}
	if !drawn {
		m.DrawnByRefs = m.DrawnByRefs[:0]
	}
	if !zones {
		m.ZoneDefaultRefs = m.ZoneDefaultRefs[:0]
	}
	m.RuleNames = p.names.ordered
	p.Limits = p.names.infos[:p.names.used] // the loop may have added some
	p.EveryLimit = m
}
