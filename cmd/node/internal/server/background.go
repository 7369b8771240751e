package server

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// background is the work that a server has begun in goroutines of its own. It is safe for
// concurrent use.
type background struct {
	all sync.WaitGroup

	mu      sync.Mutex
	running map[*string]string // what each goroutine does that has not ended
}

// start runs f in a goroutine. what names it in the log.
func (b *background) start(what string, f func()) {
	id := new(string)
	b.mu.Lock()
	if b.running == nil {
		b.running = make(map[*string]string)
	}
	b.running[id] = what
	b.mu.Unlock()
	b.all.Go(func() {
		defer func() {
			b.mu.Lock()
			delete(b.running, id)
			b.mu.Unlock()
		}()
		f()
	})
}

// serve is start for what serves, whose error goes to failed.
func (b *background) serve(what string, failed chan<- error, serve func() error) {
	b.start(what, func() {
		if err := serve(); err != nil {
			failed <- err
		}
	})
}

// wait waits until all work has ended, or until the context ends. It returns what is left,
// in order.
func (b *background) wait(ctx context.Context) (left []string) {
	ended := make(chan struct{})
	go func() {
		b.all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Values(b.running))
}
