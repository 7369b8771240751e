package transport

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// counted counts the batches that were decided.
type counted struct {
	stub
	batches atomic.Int64
}

func (c *counted) CheckBatchInto(_ context.Context, _ []limiter.Request, ds []limiter.Decision) error {
	for i := range ds {
		ds[i].Clear()
		ds[i].Allowed = true
	}
	c.batches.Add(1)
	return nil
}

// Explain returns an explanation of 8 KiB.
func (c *counted) Explain(context.Context, limiter.Request) (*limiter.Explanation, error) {
	return &limiter.Explanation{Decision: &limiter.Decision{}, Rules: []string{strings.Repeat("r", 8<<10)}}, nil
}

// explained returns a large call of Explain.
func explanationOf(t *testing.T) []byte {
	t.Helper()
	attributes := make(map[string]string) // whose weight is above listen.FreeWeight, in one frame
	for i := range MaxAttributes {
		attributes[strconv.Itoa(i)] = strings.Repeat("g", 960)
	}
	raw, err := proto.Marshal(&weirv1.CheckRequest{Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	return messageOf(len(raw), raw)
}

// waitFor waits until a condition holds.
func (s *ticking) waitFor(what string, is func() bool) {
	s.t.Helper()
	for begun := time.Now(); !is(); {
		if time.Since(begun) > watchdog {
			s.t.Fatalf("never: %s; %d bytes of room are used", what, s.service.room.InUse())
		}
		time.Sleep(time.Millisecond)
	}
}

// largeOf returns a message of MaxBatch checks, as columns or as a batch.
func largeOf(t *testing.T, columns bool) []byte {
	t.Helper()
	var m proto.Message = &weirv1.CheckColumns{Costs: make([]int64, MaxBatch)}
	if !columns {
		b := &weirv1.CheckBatchRequest{}
		for range MaxBatch {
			b.Checks = append(b.Checks, &weirv1.CheckRequest{User: "ada"})
		}
		m = b
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return messageOf(len(raw), raw)
}

// TestUnreadReplies: streams whose clients send large messages and read no reply hold
// the replies, and not the memory of the messages. Clients of other addresses, and of
// the same one, are answered.
func TestUnreadReplies(t *testing.T) {
	const streams, messages = 10, 20
	by := new(counted)
	// half of it is enough for a message of each stream
	s := newTicking(t, func(o *Options) { o.Decider, o.MaxDecodingBytes = by, 32<<20 })
	thief := s.dialFrom("127.0.0.2", 0)
	message := largeOf(t, true)
	for i := range uint32(streams) {
		thief.send(headersOf(1+2*i, "CheckStream"))
		for range messages {
			thief.send(frameOf(frameData, 0, 1+2*i, message))
		}
	}
	// gRPC lets a stream queue 64 KiB. The handler of the message after these waits.
	reply := proto.Size(&weirv1.DecisionColumns{Flags: make([]byte, MaxBatch),
		Remaining: slices.Repeat([]uint64{math.MaxUint32}, MaxBatch), LimitRefs: make([]uint32, MaxBatch),
		ResetAfterUs: make([]int64, MaxBatch)})
	each := int64((64<<10)/reply + 1)
	s.waitFor("each stream waits for its client", func() bool {
		n := by.batches.Load()
		return n >= streams*each && s.service.room.InUse() < 2*n*int64(reply)
	})
	if n := s.service.room.InUse(); n < streams*each*int64(reply) {
		t.Errorf("%d bytes of room are used for %d replies of %d bytes", n, streams*each, reply)
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		c := s.dialFrom(from, someWindow)
		before := by.batches.Load()
		c.send(headersOf(1, "CheckBatch"), frameOf(frameData, flagEndStream, 1, largeOf(t, false)))
		c.wants("the answer to another client", frameData, 1)
		if by.batches.Load() == before {
			t.Errorf("the client at %s is answered without a decision", from)
		}
		c.Close()
	}
	thief.Close()
	s.waitFor("all room is given back", func() bool { return s.service.room.InUse() == 0 })
}

// TestRoomOfUnwritten: the room of an answer is given back when it has been written, when
// its stream is reset, and when its connection ends; not when the handler returns.
func TestRoomOfUnwritten(t *testing.T) {
	ends := map[string]func(c *rawClient){
		"it is read":              func(c *rawClient) { c.send(opened(0), opened(1)) },
		"the stream is reset":     func(c *rawClient) { c.send(resetOf(1)) },
		"the connection is ended": func(c *rawClient) { c.Close() },
	}
	for method, message := range map[string][]byte{"CheckBatch": largeOf(t, false), "Explain": explanationOf(t)} {
		for name, end := range ends {
			t.Run(method+"/"+name, func(t *testing.T) {
				by := new(counted)
				s := newTicking(t, func(o *Options) { o.Decider = by })
				c := s.dial(0)
				c.send(headersOf(1, method), frameOf(frameData, flagEndStream, 1, message))
				c.wants("what needs no window", frameHeaders, 1)
				// The room of the request was replaced before the answer was queued.
				if n := s.service.room.InUse(); n < MaxBatch || n > 64<<10 {
					t.Errorf("%d bytes of room are used for an answer of 1 to 64 KiB", n)
				}
				end(c)
				s.waitFor("the room is given back", func() bool { return s.service.room.InUse() == 0 })
			})
		}
	}
}

// roomAtWrite is a response whose Write notes the room that is in use.
type roomAtWrite struct {
	*httptest.ResponseRecorder
	room  *listen.Room
	inUse int64
}

func (w *roomAtWrite) Write(p []byte) (int, error) {
	w.inUse = w.room.InUse()
	return w.ResponseRecorder.Write(p)
}

// TestRoomOfAnswerOverHTTP: while the answer to a batch is sent over HTTP, the room of
// the batch is that of the answer. Afterwards it is given back.
func TestRoomOfAnswerOverHTTP(t *testing.T) {
	o := Options{Decider: new(counted)}
	s := newService(o)
	f := newFront(s, func() error { return nil }, &o)
	body := `{"checks":[` + strings.TrimSuffix(strings.Repeat(`{"user":"ada"},`, MaxBatch), ",") + `]}`
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/check/batch", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := &roomAtWrite{httptest.NewRecorder(), &s.room, 0}
	f.ServeHTTP(w, r)
	if n := int64(w.Body.Len()); w.Code != http.StatusOK || w.inUse < n || w.inUse > 4*n {
		t.Errorf("status %d; %d bytes of room are used while %d bytes are sent", w.Code, w.inUse, n)
	}
	if n := s.room.InUse(); n != 0 {
		t.Errorf("%d bytes of room are left", n)
	}
}

// TestSlowBodies: bodies over HTTP that do not end take the share of their address. A
// client of another address is answered.
func TestSlowBodies(t *testing.T) {
	o := Options{Decider: new(counted), MaxDecodingBytes: 8 << 20}
	s := newService(o)
	web := httptest.NewServer(newFront(s, func() error { return nil }, &o))
	t.Cleanup(web.Close) // after its clients
	at := web.Listener.Addr().String()
	dial := func(from string) net.Conn {
		c, err := dialFrom(t.Context(), from, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	const head = "POST /v1/check/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
		"%d\r\n\r\n%s"
	for range 12 { // about 1 MB each, if there were room
		before := s.room.InUse()
		c := dial("127.0.0.2")
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = c.Read(make([]byte, 1)) // an answer, or the end of the test
		}()
		fmt.Fprintf(c, head, MaxBodyBytes, strings.Repeat(" ", 600<<10))
		for begun := time.Now(); s.room.InUse() < before+1_000_000; {
			if time.Since(begun) > watchdog {
				t.Fatalf("a body takes %d bytes", s.room.InUse()-before)
			}
			select {
			case <-answered: // refused
				before = -1_000_000
			case <-time.After(time.Millisecond):
			}
		}
	}
	ask := func(from string) (status int, retryAfter string) {
		c := dial(from)
		body := `{"checks":[` + strings.TrimSuffix(strings.Repeat(`{"user":"ada"},`, 100), ",") + `]}`
		fmt.Fprintf(c, head, len(body), body)
		got, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		return got.StatusCode, got.Header.Get("Retry-After")
	}
	if status, retry := ask("127.0.0.2"); status != http.StatusServiceUnavailable || retry != "1" {
		t.Errorf("the address of the slow bodies got %d, and may retry after %q", status, retry)
	}
	for range 3 {
		if status, _ := ask("127.0.0.1"); status != http.StatusOK {
			t.Errorf("another address got %d", status)
		}
	}
}

// wide allows every check by 16 limits, and notes the room that is in use when the first
// name of a key is asked for.
type wide struct {
	counted
	room    *listen.Room
	atNames int64
}

var hourly, _ = limiter.NewLimit(limiter.Spec{Limit: 9, Window: time.Hour})

func (w *wide) CheckBatchInto(_ context.Context, _ []limiter.Request, ds []limiter.Decision) error {
	for i := range ds {
		ds[i].Grow(16)
		for j := range 16 {
			*ds[i].Limit(j) = limiter.LimitDecision{Rule: &limiter.Rule{}, Limit: hourly, Allowed: true}
		}
		ds[i].Allowed = true
	}
	return nil
}

func (w *wide) KeyName(*limiter.Request, *limiter.LimitDecision) string {
	if w.atNames == 0 {
		w.atNames = w.room.InUse()
	}
	return "key"
}

// TestRoomOfManyLimits: the room for an answer that repeats the keys of each check for
// each of its limits is taken before the answer is built.
func TestRoomOfManyLimits(t *testing.T) {
	for _, columns := range []bool{true, false} {
		by := new(wide)
		s := newService(Options{Decider: by})
		by.room = &s.room
		message := largeOf(t, columns)[5:]
		h := listen.Hold{Room: &s.room}
		if columns {
			m := &columnsMessage{service: s, hold: h}
			m.readBytes(message)
			if m.refused != nil {
				t.Fatal(m.refused)
			}
			m.columns.EveryLimit = true
			if err := s.decideColumns(t.Context(), new(turn), &m.columns, &m.hold); err != nil {
				t.Fatal(err)
			}
		} else if _, err := s.serveBatch(t.Context(), decoding(string(message))); err != nil {
			t.Fatal(err)
		}
		if want := int64(16 * weightOfCheck * MaxBatch); by.atNames < want {
			t.Errorf("columns %t: %d bytes of room are used when the answer is built, want %d", columns, by.atNames, want)
		}
	}
}
