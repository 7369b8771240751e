package listen

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// unreadConn is a connection that is driven without a network.
func unreadConn(t *testing.T, most int64) (c *watchedConn, r *Room) {
	t.Helper()
	r = &Room{Most: most}
	of := NewWatcher(nil, WatchOptions{Patience: 5 * time.Second, Streams: 10, Most: most, Room: r})
	c = &watchedConn{Conn: &memoryConn{}, of: of, streams: map[uint32]*clientStream{}}
	c.unsent.from = netip.MustParsePrefix("192.0.2.1/32")
	return c, r
}

// smallAnswer returns the frame of an answer of a few bytes to stream 1.
func smallAnswer() []byte {
	return frameOf(frameData, 0, 1, messageOf(2, []byte("ok")))
}

// TestUnreadMessages: messages after the first one without an answer take room, from some
// amount of the connection on. Answers to them give it back, and so does the end of the
// stream.
func TestUnreadMessages(t *testing.T) {
	const size = 10 << 10
	c, room := unreadConn(t, 64<<20)
	ask := frameOf(frameData, 0, 1, messageOf(size, make([]byte, size)))
	c.in.read(headersOf(1), inbound{c})
	for range 40 {
		c.in.read(ask, inbound{c})
	}
	if n := room.InUse(); n < 39*size-freeOfConn || n > 40*(size+1000)-freeOfConn+roomStep {
		t.Errorf("%d bytes of room are used for 39 unread messages of %d", n, size)
	}
	for i := range 40 { // with as many unread ones all the time
		c.out.read(smallAnswer(), outbound{c})
		c.in.read(ask, inbound{c})
		if n := room.InUse(); n < 39*size-freeOfConn || n > 2*40*(size+1000) {
			t.Fatalf("%d bytes of room are used after %d answers", n, i+1)
		}
	}
	for range 40 {
		c.out.read(smallAnswer(), outbound{c})
	}
	if n := room.InUse(); n != 0 || c.unsent.loose != openWeight {
		t.Errorf("all is answered: %d bytes of room are used, and %d counted", n, c.unsent.loose)
	}
	for range 40 {
		c.in.read(ask, inbound{c})
	}
	c.in.read(appendReset(nil, 1), inbound{c})
	if n := room.InUse(); n != 0 || c.unsent.loose != 0 {
		t.Errorf("the stream has ended: %d bytes of room are used, and %d counted", n, c.unsent.loose)
	}
}

// TestRoomFollowsWhatIsLoose: a connection takes the room that it needs and less than a step
// more, so that one with a little more than its free part leaves the room to others. At a
// bound it keeps what it has, and does not take and give for each answer.
func TestRoomFollowsWhatIsLoose(t *testing.T) {
	c, room := unreadConn(t, 64<<20)
	stream := &clientStream{}
	to := func(loose int64) int64 {
		t.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.loosen(stream, loose-c.unsent.loose) {
			t.Fatalf("there is no room for %d bytes", loose)
		}
		used := room.InUse()
		if need := loose - freeOfConn; used < need || used >= max(0, need)+freeOfConn/2+roomStep {
			t.Fatalf("%d bytes of room are used for the %d bytes above the free part", used, need)
		}
		return used
	}
	if used := to(freeOfConn); used != 0 {
		t.Errorf("%d bytes of room are used for the free part", used)
	}
	if used := to(freeOfConn + 1); used > 16<<10 {
		t.Errorf("%d bytes of room are used for the first byte above the free part", used)
	}
	for _, at := range []int64{freeOfConn, freeOfConn + roomStep, freeOfConn + 7*roomStep} {
		before := to(at + 1)
		for range 3 {
			if low, high := to(at-freeOfConn/2+1), to(at+1); low != before || high != before {
				t.Errorf("at %d bytes the room goes from %d to %d and %d", at, before, low, high)
			}
		}
	}
	rng := rand.New(rand.NewPCG(8, 16))
	for range 1000 {
		to(rng.Int64N(1 << 20))
	}
	if used := to(freeOfConn / 2); used != 0 {
		t.Errorf("%d bytes of room are kept for half of the free part", used)
	}
}

// TestFreePartsAreBounded: the connections that one address may open, each with as many unread
// messages as it can have without room, keep less than the room itself.
func TestFreePartsAreBounded(t *testing.T) {
	const size = 8 << 10
	room := &Room{Most: 256 << 20} // as servers have by default
	of := NewWatcher(nil, WatchOptions{Patience: 30 * time.Second, Streams: 100, Most: room.Most, Room: room})
	ask := frameOf(frameData, 0, 1, messageOf(size, make([]byte, size)))
	kept := int64(0)
	for range defaultFromAddress {
		c := &watchedConn{Conn: &memoryConn{}, of: of, streams: map[uint32]*clientStream{}}
		c.unsent.from = netip.MustParsePrefix("192.0.2.1/32")
		c.in.read(headersOf(1), inbound{c})
		for range 12 { // up to the window of a stream
			c.in.read(ask, inbound{c})
		}
		kept += c.unsent.loose - c.unsent.ending // what is to be reset is kept for a moment only
	}
	most, used, free := room.Most, room.InUse(), int64(defaultFromAddress)*freeOfConn
	if kept > used+free || used > most/2 || kept >= most {
		t.Errorf("one address keeps %d bytes of unread messages with %d without room, and uses %d of the %d bytes of room",
			kept, free, used, most)
	}
	if free := int64(defaultConnections) * freeOfConn; free > most {
		t.Errorf("all connections of a listener may keep %d bytes without room, more than the room of %d", free, most)
	}
}

// TestUnreadAnswers: small answers that gRPC has and has not written take room by their
// capacity, from some amount of the connection on, until gRPC returns them or their stream
// ends, whichever is first.
func TestUnreadAnswers(t *testing.T) {
	const size, n = 8 << 10, 100
	c, room := unreadConn(t, 64<<20)
	var pools []*answerPool
	answers := new(Answers)
	fill := func(stream uint32) {
		c.in.read(headersOf(stream), inbound{c})
		for range n {
			pools = append(pools, c.keep(answers, stream, &Hold{Room: room}, size))
		}
		if used := room.InUse(); used < n*size-freeOfConn || used > n*size-freeOfConn+roomStep {
			t.Errorf("%d bytes of room are used for %d answers of %d", used, n, size)
		}
	}
	left := int64(0)
	empty := func(when string) {
		t.Helper()
		if used := room.InUse(); used != 0 || c.unsent.loose != left {
			t.Errorf("%s: %d bytes of room are used, and %d counted", when, used, c.unsent.loose)
		}
	}
	returned := func() {
		for _, p := range pools {
			p.Put(new([]byte))
		}
		pools = nil
	}
	fill(1)
	returned()
	left = openWeight // of a call that has sent no message
	empty("all are returned")
	left = 0
	fill(1)
	c.in.read(appendReset(nil, 1), inbound{c})
	empty("the stream has ended")
	returned()
	empty("they are returned afterwards")
	if p := c.keep(answers, 1, &Hold{Room: room}, size); p != nil {
		t.Error("an answer to a stream that has ended is kept")
	}
	fill(3)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	empty("the connection is closed")
	returned()
	empty("they are returned when it is closed")
}

// TestNoRoomForUnread: if there is no room, the stream with the most is reset. If there is
// none again before that is done, the connection is closed.
func TestNoRoomForUnread(t *testing.T) {
	const size = 10 << 10
	c, room := unreadConn(t, 1<<20)
	send := func(stream uint32, n int) {
		for range n {
			c.in.read(frameOf(frameData, 0, stream, messageOf(size, make([]byte, size))), inbound{c})
		}
	}
	for _, stream := range []uint32{1, 3, 5} {
		c.in.read(headersOf(stream), inbound{c})
	}
	send(1, 10)
	send(3, 30)
	for sent := 0; !c.resets.Load(); sent++ {
		if sent > 100 {
			t.Fatal("no stream is reset")
		}
		send(5, 1)
	}
	if !c.streams[3].ending && !c.streams[5].ending || c.streams[1].ending || len(c.reset) != 1 {
		t.Errorf("streams %v are to be reset", c.reset)
	}
	if used := room.InUse(); used > 1<<20 {
		t.Errorf("%d bytes of room are used of %d", used, 1<<20)
	}
	for sent := 0; !c.greedy; sent++ {
		if sent > 200 {
			t.Fatal("it may send for ever")
		}
		send(1, 1)
	}
	if _, err := c.Read(make([]byte, resetFrame-1)); err != nil { // too small for the reset
		t.Fatal(err)
	}
	if used := room.InUse(); used != 0 || c.unsent.loose != 0 || c.unsent.ending != 0 || !c.closed {
		t.Errorf("%d bytes of room are used, %+v, closed %v", used, c.unsent, c.closed)
	}
}

// TestManySmallAnswers: a client that reads one small answer after another has its time for
// all that it has asked for, or for 16 KiB, not for each answer.
func TestManySmallAnswers(t *testing.T) {
	c, _ := unreadConn(t, 64<<20)
	c.in.read(headersOf(1), inbound{c})
	ask := frameOf(frameData, 0, 1, messageOf(3, []byte("abc")))
	for range 8 {
		c.in.read(ask, inbound{c})
	}
	stream := c.streams[1]
	c.out.read(smallAnswer(), outbound{c}) // all that was asked when the first came
	for range 6 {
		c.of.now.Add(1)
		c.out.read(smallAnswer(), outbound{c})
	}
	if stream.since != 0 {
		t.Errorf("an answer in each tick is taken for progress at tick %d", stream.since)
	}
	c.in.read(ask, inbound{c})
	c.of.now.Add(1)
	c.out.read(smallAnswer(), outbound{c})
	if stream.since != 7 {
		t.Errorf("all that was asked for is no progress: the client owes since tick %d", stream.since)
	}
}

// TestSmallAnswerInLargeBuffer: a small answer leaves a much larger buffer to the pool.
func TestSmallAnswerInLargeBuffer(t *testing.T) {
	var p Buffers
	large := make([]byte, 100, FreeWeight)
	if got := p.trim(&large); len(*got) != 100 || cap(*got) > smallBuffer {
		t.Errorf("an answer of 100 bytes keeps %d", cap(*got))
	}
}

// Calls without a message, and header fields, take room as unread messages do, until the call ends; so does one
// that is answered and goes on.
func TestOpenCallsTakeRoom(t *testing.T) {
	const many = 12 << 10
	c, room := unreadConn(t, 64<<20)
	id := func(i int) uint32 { return uint32(2*i + 1) }
	for i := range 10 {
		c.in.read(frameOf(frameHeaders, 0, id(i), make([]byte, many-100)), inbound{c})
		c.in.read(frameOf(frameContinuation, flagEndHeaders, id(i), make([]byte, 100)), inbound{c})
	}
	if want := int64(10 * (openWeight + WeightOfByte*many)); c.unsent.loose != want ||
		room.InUse() != stepsOf(want-freeOfConn) {
		t.Errorf("10 open calls: %d bytes are counted, and %d of room used, want %d", c.unsent.loose, room.InUse(), want)
	}
	half, rest := messageOf(4, []byte("ab")), []byte("cd")
	for i := range 10 {
		c.in.read(frameOf(frameData, 0, id(i), half), inbound{c})
	}
	if want := int64(10 * (openWeight + WeightOfByte*many)); c.unsent.loose != want {
		t.Errorf("with half a message each: %d bytes are counted, want %d", c.unsent.loose, want)
	}
	for i := range 10 {
		c.in.read(frameOf(frameData, 0, id(i), rest), inbound{c})
	}
	if want := int64(10 * (openWeight + WeightOfByte*many)); c.unsent.loose != want {
		t.Errorf("with a message each: %d bytes are counted, want %d, as more may come", c.unsent.loose, want)
	}
	for i := range 10 {
		c.in.read(frameOf(frameData, flagEndStream, id(i), nil), inbound{c})
		c.out.read(frameOf(frameData, 0, id(i), messageOf(2, []byte("ok"))), outbound{c})
	}
	if want := int64(10 * (openWeight + WeightOfByte*many)); c.unsent.loose != want {
		t.Errorf("with an answer that has no end each: %d bytes are counted, want %d", c.unsent.loose, want)
	}
	for i := range 10 {
		c.in.read(appendReset(nil, id(i)), inbound{c})
	}
	if c.unsent.loose != 0 || room.InUse() != 0 {
		t.Errorf("all have ended: %d bytes are counted, and %d of room used", c.unsent.loose, room.InUse())
	}
}

// A call whose only message is there takes no room while it is decided.
func TestACallThatIsDecidedTakesNoRoom(t *testing.T) {
	c, room := unreadConn(t, 64<<20)
	for i := range 100 {
		id := uint32(2*i + 1)
		c.in.read(headersOf(id), inbound{c})
		c.in.read(frameOf(frameData, flagEndStream, id, messageOf(2, []byte("ok"))), inbound{c})
	}
	if c.unsent.loose != 0 || room.InUse() != 0 {
		t.Errorf("100 calls: %d bytes are counted, and %d of room used", c.unsent.loose, room.InUse())
	}
}

// Without room for what a caller opens, its calls are reset, and its connection is closed if that is not enough.
func TestOpenCallsHaveABound(t *testing.T) {
	const most = 256 << 10
	c, room := unreadConn(t, most)
	for i := range 10 {
		c.in.read(frameOf(frameHeaders, flagEndHeaders, uint32(2*i+1), make([]byte, 14<<10)), inbound{c})
	}
	if n := room.InUse(); n > most || !c.greedy || len(c.reset) == 0 {
		t.Errorf("%d bytes of room are used of %d, %d calls are to be reset, to be closed: %v", n, most, len(c.reset),
			c.greedy)
	}
}
