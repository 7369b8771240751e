package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/transport"
)

// Bounds of watchers, and how often they are told.
const (
	maxWatchers = 64 // of them an identity has at most a quarter
	maxFeeds    = 64 // likewise
	share       = 4
	feedEvery   = time.Second
	streamLife  = 15 * time.Minute // then the browser connects again
	sendWithin  = 5 * time.Second
)

// feeds are what watchers see: one for each page with its query, which is made once a second for all who watch it.
type feeds struct {
	mu       sync.Mutex
	of       map[string]*feed
	watchers map[string]int // by identity
	all      int
}

// feed is one page. Its goroutine lives as long as it has watchers.
type feed struct {
	watchers int
	owner    string // who began it
	mu       sync.Mutex
	build    builder           // of the last who came
	sections map[string]string // as events, by their ids
	changed  chan struct{}     // closed when there is another version
	cancel   context.CancelFunc
}

// builder makes the parts of a page.
type builder func(context.Context) (map[string]string, error)

var errWatchers = fmt.Errorf("%w: too many pages are being watched: close some, or reload this one by hand",
	frontend.ErrBudget)

// owned returns how many feeds an identity began.
func (f *feeds) owned(who string) (n int) {
	for _, x := range f.of {
		if x.owner == who {
			n++
		}
	}
	return n
}

// watch begins to watch a page, for an identity.
func (f *feeds) watch(who, key string, build builder) (*feed, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.of[key]
	if f.all >= maxWatchers || f.watchers[who] >= maxWatchers/share ||
		x == nil && (len(f.of) >= maxFeeds || f.owned(who) >= maxFeeds/share) {
		return nil, nil, errWatchers
	}
	if x == nil {
		ctx, cancel := context.WithCancel(context.Background())
		x = &feed{owner: who, build: build, changed: newChan(), cancel: cancel}
		if f.of == nil {
			f.of, f.watchers = map[string]*feed{}, map[string]int{}
		}
		f.of[key] = x
		go x.run(ctx)
	} else {
		x.mu.Lock()
		x.build = build
		x.mu.Unlock()
	}
	x.watchers++
	f.watchers[who]++
	f.all++
	return x, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all--
		if f.watchers[who]--; f.watchers[who] == 0 {
			delete(f.watchers, who)
		}
		if x.watchers--; x.watchers == 0 {
			x.cancel()
			delete(f.of, key)
		}
	}, nil
}

func newChan() chan struct{} { return make(chan struct{}) }

// safely calls build, and returns a panic of it as an error: pages have what other members say.
func safely(ctx context.Context, build builder) (_ map[string]string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the page could not be made: %v", r)
		}
	}()
	return build(ctx)
}

// run makes the page anew each second.
func (x *feed) run(ctx context.Context) {
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	for {
		x.mu.Lock()
		build := x.build
		x.mu.Unlock()
		sections, err := safely(ctx, build)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			for id, text := range sections { // once for all who watch
				sections[id] = sent(id, text)
			}
			x.mu.Lock()
			x.sections = sections
			close(x.changed)
			x.changed = newChan()
			x.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sent returns a part of a page as a server-sent event.
func sent(id, text string) string {
	data, _ := json.Marshal(map[string]string{"id": id, "html": text}) // which never fails
	return "data: " + string(data) + "\n\n"
}

// state returns what there is now, and what is closed when there is more.
func (x *feed) state() (map[string]string, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sections, x.changed
}

// serveStream sends the changing parts of a page, as server-sent events, to one who watches it.
func (s *site) serveStream(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	p := pageNamed(r.URL.Query().Get("page"))
	err := by.Err
	if err == nil && p.sections == nil {
		err = invalid("there is no such page")
	}
	if err == nil {
		err = p.mayLook(&by)
	}
	var q url.Values
	if err == nil {
		q, err = p.asked(r)
	}
	var f *feed
	var end func()
	if err == nil {
		who := by.Name() + "\x00" + by.Tenant()
		key := p.name + "?" + q.Encode() + "\x00" + by.Tenant()
		if p.name == "why" { // what one may ask another may not
			key += "\x00" + who
		}
		f, end, err = s.feeds.watch(who, key, func(ctx context.Context) (map[string]string, error) {
			return s.sections(ctx, p, q, &by)
		})
	}
	if err != nil {
		by.Fail(err)
		return
	}
	defer end()
	if !by.Watch() {
		by.Fail(errWatchers)
		return
	}
	security(w.Header())
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s.send(w, r, f, &by)
}

// send sends what changes until the watcher goes, may not see it any more, or its time is over.
func (s *site) send(w http.ResponseWriter, r *http.Request, f *feed, by *transport.AdminCaller) {
	to := http.NewResponseController(w)
	over := time.NewTimer(streamLife)
	defer over.Stop()
	has := map[string]string{}
	for by.Still() == nil {
		sections, more := f.state()
		var b bytes.Buffer
		for id, text := range sections {
			if has[id] == text {
				continue
			}
			has[id] = text
			b.WriteString(text)
		}
		if b.Len() == 0 {
			b.WriteString(": nothing changed\n\n")
		}
		fmt.Fprintf(&b, "event: at\ndata: %d\n\n", s.console.config.Now().UnixMilli())
		if err := to.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return
		}
		if _, err := w.Write(b.Bytes()); err != nil {
			return
		}
		if to.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		case <-over.C:
			return
		}
	}
}

// sections makes the parts of a page that change.
func (s *site) sections(ctx context.Context, p pageOf, q url.Values, by *transport.AdminCaller) (map[string]string,
	error) {
	l, err := s.fill(ctx, p, q, by)
	if err != nil {
		return nil, err
	}
	x := &shown{look: l, Page: pageView{Name: p.name, Path: p.path}}
	out := map[string]string{}
	for _, id := range append([]string{"facts", "trouble"}, p.sections...) {
		var b bytes.Buffer
		if err := s.templates.ExecuteTemplate(&b, id, x); err != nil {
			return nil, err
		}
		out[id] = b.String()
	}
	return out, nil
}

// snapshot is an answer that all who ask within a second share.
type snapshot struct {
	once  sync.Once
	made  time.Time
	value any
	err   error
}

// snapshots are the last ones.
type snapshots struct {
	mu sync.Mutex
	of map[string]*snapshot
}

const (
	snapshotLife = 900 * time.Millisecond
	maxSnapshots = 64
)

// shared returns what was made by this name less than a second ago, or makes it, once for all who ask meanwhile. So it
// does not end with the request of the one who asked first.
func shared[T any](ctx context.Context, s *snapshots, name string, build func(context.Context) (T, error)) (T, error) {
	now := time.Now()
	s.mu.Lock()
	x := s.of[name]
	if x == nil || now.Sub(x.made) >= snapshotLife {
		if s.of == nil || len(s.of) >= maxSnapshots {
			s.of = map[string]*snapshot{}
		}
		x = &snapshot{made: now}
		s.of[name] = x
	}
	s.mu.Unlock()
	x.once.Do(func() {
		x.err = errors.New("it could not be made") // unless build returns
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*askWithin)
		defer cancel()
		x.value, x.err = build(ctx)
	})
	value, _ := x.value.(T)
	return value, x.err
}
