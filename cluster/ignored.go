package cluster

import (
	"sync"
	"time"

	core "github.com/weirlimit/weir/internal/cluster"
)

const (
	// maxIgnored bounds the kinds of parts of frames that are told apart; further ones are
	// only logged.
	maxIgnored = 256
	// ignoredFor is how long a kind is not told again.
	ignoredFor = time.Minute
)

// ignored counts parts of frames that were ignored, until the audit is told. The core must
// not wait for that, nor for the lock of the list of members.
type ignored struct {
	mu    sync.Mutex
	parts map[core.NotCredibleError]*ignoredPart
}

type ignoredPart struct {
	times    uint64 // since it was told
	reported time.Time
}

func (i *ignored) add(part core.NotCredibleError) {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.parts[part]
	if p == nil {
		if len(i.parts) >= maxIgnored {
			return
		}
		if i.parts == nil {
			i.parts = make(map[core.NotCredibleError]*ignoredPart)
		}
		p = new(ignoredPart)
		i.parts[part] = p
	}
	p.times++
}

// due returns what is to be told, with its number, and forgets what did not come again.
func (i *ignored) due(now time.Time) map[core.NotCredibleError]uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out map[core.NotCredibleError]uint64
	for part, p := range i.parts {
		switch {
		case now.Sub(p.reported) < ignoredFor:
		case p.times == 0:
			delete(i.parts, part)
		default:
			if out == nil {
				out = make(map[core.NotCredibleError]uint64)
			}
			out[part] = p.times
			p.times, p.reported = 0, now
		}
	}
	return out
}
