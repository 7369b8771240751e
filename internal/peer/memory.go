package peer

import "slices"

// Clone returns a copy that shares no memory with f that is changed later.
func (f *Frame) Clone() *Frame {
	g := *f
	g.Rules, g.Limits = slices.Clone(f.Rules), slices.Clone(f.Limits)
	g.Claims, g.Answers, g.Announces = slices.Clone(f.Claims), slices.Clone(f.Answers), slices.Clone(f.Announces)
	g.Revokes, g.Batches, g.Acks = slices.Clone(f.Revokes), slices.Clone(f.Batches), slices.Clone(f.Acks)
	g.IDs, g.Entries = slices.Clone(f.IDs), slices.Clone(f.Entries)
	for i := range g.Entries {
		g.Entries[i].Words = slices.Clone(g.Entries[i].Words)
	}
	g.Checks, g.Keys, g.Refunds = slices.Clone(f.Checks), slices.Clone(f.Keys), slices.Clone(f.Refunds)
	g.Replies, g.Results, g.Known = slices.Clone(f.Replies), slices.Clone(f.Results), slices.Clone(f.Known)
	g.Names, g.Explained, g.Traces = slices.Clone(f.Names), slices.Clone(f.Explained), slices.Clone(f.Traces)
	g.Holds, g.Amended, g.Expelled = slices.Clone(f.Holds), slices.Clone(f.Amended), slices.Clone(f.Expelled)
	g.Notes = slices.Clone(f.Notes)
	return &g
}

// Reset empties the frame and keeps its memory for reuse.
func (f *Frame) Reset() {
	*f = Frame{
		Rules: clearAll(f.Rules), Limits: clearAll(f.Limits),
		Claims: f.Claims[:0], Answers: f.Answers[:0], Announces: f.Announces[:0], Revokes: f.Revokes[:0],
		Batches: f.Batches[:0], IDs: f.IDs[:0], Entries: clearAll(f.Entries), Acks: f.Acks[:0],
		Checks: f.Checks[:0], Keys: f.Keys[:0], Refunds: f.Refunds[:0], Replies: f.Replies[:0], Results: f.Results[:0],
		Known: clearAll(f.Known), Names: clearAll(f.Names), Explained: clearAll(f.Explained), Traces: f.Traces[:0],
		Holds: f.Holds[:0], Amended: f.Amended[:0], Expelled: clearAll(f.Expelled),
		Notes: clearAll(f.Notes),
	}
}

func clearAll[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// Empty reports whether the frame has nothing to send.
func (f *Frame) Empty() bool {
	return len(f.Claims)+len(f.Answers)+len(f.Announces)+len(f.Revokes)+len(f.Batches)+len(f.Acks)+
		len(f.Checks)+len(f.Refunds)+len(f.Replies)+len(f.Known)+len(f.Names)+len(f.Expelled)+len(f.Notes) == 0
}
