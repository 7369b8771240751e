package accesslog

import "github.com/weirlimit/weir/limiter"

// Cursor iterates over a [Trace] in the order of time. Requests with the same time keep
// the order in which they were added. The trace must not grow meanwhile.
type Cursor struct {
	t *Trace
	// heads is a binary heap of the chunks with records left.
	heads []head
}

// head is the next record of one chunk.
type head struct {
	time  limiter.Tick
	chunk int
	next  int
}

func (a head) before(b head) bool {
	return a.time < b.time || a.time == b.time && a.chunk < b.chunk
}

// Cursor returns a cursor at the beginning. A trace may have several cursors, used one
// after the other or alternately. The first call sorts the trace.
func (t *Trace) Cursor() *Cursor {
	t.sort()
	c := &Cursor{t: t}
	for i, chunk := range t.chunks {
		c.heads = append(c.heads, head{chunk[0].time, i, 0})
	}
	for i := len(c.heads)/2 - 1; i >= 0; i-- {
		c.sink(i)
	}
	return c
}

// Next fills in path, method, user and ip of the next request, leaves the other fields
// of r unchanged, and returns the request's time. It reports false at the end.
func (c *Cursor) Next(r *limiter.Request) (limiter.Tick, bool) {
	if len(c.heads) == 0 {
		return 0, false
	}
	h := &c.heads[0]
	chunk := c.t.chunks[h.chunk]
	rec := &chunk[h.next]
	t := c.t
	r.Path, r.Method = t.paths.all[rec.path], t.methods.all[rec.method]
	r.User, r.IP = t.users.all[rec.user], t.hosts.all[rec.host]
	if h.next++; h.next < len(chunk) {
		h.time = chunk[h.next].time
	} else {
		last := len(c.heads) - 1
		c.heads[0] = c.heads[last]
		c.heads = c.heads[:last]
	}
	c.sink(0)
	return rec.time, true
}

// sink restores the heap after the time of heads[i] may have increased.
func (c *Cursor) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(c.heads); child++ {
			if c.heads[child].before(c.heads[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		c.heads[i], c.heads[least] = c.heads[least], c.heads[i]
		i = least
	}
}
