package transport

import (
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
)

// readBatch decodes a CheckBatchRequest into the requests of a turn. It returns ErrRoom
// if there is no room for it. n is the number of checks; above MaxBatch none is
// decoded.
func (t *turn) readBatch(text string, h *listen.Hold) (n int, err error) {
	t.peeks, t.fulls = t.peeks[:0], t.fulls[:0]
	if err := weirwire.EachCheck(text, func(string) error { n++; return nil }); err != nil || n > MaxBatch {
		return n, err
	}
	if err := h.Add(weightOf(len(text), n, 0)); err != nil {
		return n, err
	}
	t.grow(n)
	at := 0
	return n, weirwire.EachCheck(text, func(one string) error {
		peek, full, err := weirwire.ReadCheck(one, &t.requests[at])
		if peek {
			t.peeks = append(t.peeks, at)
		}
		if full != nil {
			t.fulls = append(t.fulls, fullCheck{at, full})
			if err == nil {
				err = h.Add(weightOfParts(full.Parts))
			}
		}
		at++
		return err
	})
}
