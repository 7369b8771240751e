package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/peer"
)

// handover hands over, once, what a member owns.
type handover struct {
	member *member
	ended  chan struct{} // closed when the handover has ended
	whole  bool          // whether everything was handed over; written before ended is closed
}

// run hands over what this node owns. If a handover is under way already, it waits
// for that one, and mine is false. The error reports that not everything was handed over
// in time.
func (h *handover) run(ctx context.Context) (mine bool, err error) {
	m := h.member
	begun, joining := time.Now(), m.announcer.joining.Load()
	mine = m.membership.Leave(func(whole bool) {
		h.whole = whole
		close(h.ended)
	}) == nil
	select {
	case <-h.ended:
	case <-m.ended:
		return mine, weir.ErrClosed
	case <-ctx.Done():
		return mine, fmt.Errorf("weir: the context ended before all counters were handed over: %w", ctx.Err())
	}
	if !h.whole {
		return mine, errors.New("weir: some counters could not be handed over; the other members continue from their copies")
	}
	switch {
	case !mine, joining && m.keeper == nil: // a joining node owns no counters, but for those of a directory
	case h.stays():
		m.log.Info("all counters were handed over", "took", time.Since(begun).Round(time.Millisecond))
	default:
		m.keeper.alone(m.log)
	}
	return mine, nil
}

// stays reports whether another member is in the view that is not leaving.
func (h *handover) stays() bool {
	self := h.member.membership.Self().Instance
	return slices.ContainsFunc(h.member.core.View().Members, func(o peer.Member) bool {
		return o.Instance != self && o.State != peer.Leaving
	})
}
