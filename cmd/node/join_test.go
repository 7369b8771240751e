//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// joinKeys is how many keys three nodes hold when a fourth joins; WEIR_JOIN_KEYS
// overrides it. make test-long sets 1,000,000.
func joinKeys(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("WEIR_JOIN_KEYS"))
	if os.Getenv("WEIR_JOIN_KEYS") != "" && err != nil {
		t.Fatal(err)
	}
	return max(n, 20_000)
}

// A fourth node joins three that hold many keys, under continuous checks. It takes over
// its share, no counter is lost, and no policy answers. The test logs how long the
// cluster takes to settle, and the longest wait of a check.
func TestFourthNodeJoins(t *testing.T) {
	n := joinKeys(t)
	rules := fmt.Sprintf("version: 1\nrules:\n  - {name: keys, match: {path: \"^/k\"}, key: [path, user], limits: "+
		"[{limit: %d, window: 1d, algorithm: fixed_window, align: first_hit}]}\n"+
		"  - {name: load, match: {path: \"^/l\"}, key: [path, user], limits: [1000000000/hour]}\n", 1000)
	all := places(t, 4, rules)
	for _, s := range all[:3] {
		s.start(t)
	}
	settle(t, all[:3])
	a := newAsker(t, all[:3])
	first := time.Now()
	columns(t, a.nodes[0], n)
	t.Logf("%d keys were charged in %v", n, time.Since(first).Round(time.Millisecond))
	settle(t, all[:3])

	// Some keys are asked one by one, over and over, until all is settled.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const probed = 64
	var counts [probed]int64
	var longest, usual atomic.Int64
	probing := make(chan error, 1)
	go func() {
		var err error
		for i := 0; ctx.Err() == nil && err == nil; i++ {
			begin := time.Now()
			var d *weirv1.CheckResponse
			d, err = a.nodes[i%3].Check(context.Background(), &weirv1.CheckRequest{Path: "/k", User: strconv.Itoa(i % probed)})
			took := time.Since(begin)
			longest.Store(max(longest.Load(), int64(took)))
			usual.Store((99*usual.Load() + int64(took)) / 100)
			counts[i%probed]++
			if err == nil && (!d.Allowed || d.Source > weirv1.Source_SOURCE_HEIR) {
				err = fmt.Errorf("check %d: %v", i, d)
			}
		}
		probing <- err
	}()
	for i := range joinLoad(t) {
		go press(ctx, a.nodes[i%3], i)
	}
	for i := range unaryStreams {
		go trickle(ctx, a.nodes[i%3], joinUnary(t))
	}
	quiet := 500 * time.Millisecond
	pause(ctx, quiet)
	before := longest.Swap(0)
	begin := time.Now()
	all[3].start(t)
	all[3].until(all[3].log, "the node is ready")
	ready := time.Since(begin)
	settle(t, all)
	settled := time.Since(begin)
	stop()
	if err := <-probing; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d keys: the fourth ready %v after it was started, all settled after %v; a check took %v mostly, %v at most "+
		"before it and %v while it joined",
		n, ready.Round(time.Millisecond), settled.Round(time.Millisecond),
		time.Duration(usual.Load()).Round(10*time.Microsecond),
		time.Duration(before).Round(10*time.Microsecond), time.Duration(longest.Load()).Round(10*time.Microsecond))

	// Each key was charged once, is charged once more, and was for each check meanwhile.
	late := newAsker(t, all[3:])
	remaining := columns(t, late.nodes[0], n)
	for i, r := range remaining {
		want := uint64(1000 - 2)
		if i < probed {
			want -= uint64(counts[i])
		}
		if r != want {
			t.Fatalf("key %d has %d left, want %d", i, r, want)
		}
	}
}

// joinLoad returns on how many streams other keys are asked about without a pause while a
// node joins; WEIR_JOIN_LOAD sets it.
func joinLoad(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("WEIR_JOIN_LOAD"))
	if os.Getenv("WEIR_JOIN_LOAD") != "" && err != nil {
		t.Fatal(err)
	}
	return n
}

// joinUnary returns how many checks a second are asked one by one while a node joins;
// WEIR_JOIN_UNARY sets it.
func joinUnary(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("WEIR_JOIN_UNARY"))
	if os.Getenv("WEIR_JOIN_UNARY") != "" && err != nil {
		t.Fatal(err)
	}
	return n
}

// unaryStreams is how many callers share those checks.
const unaryStreams = 24

// trickle asks a node for one check after the other until ctx ends, as one of unaryStreams
// callers that ask for perSecond in all.
func trickle(ctx context.Context, node weirv1.LimiterClient, perSecond int) {
	if perSecond <= 0 {
		return
	}
	tick := time.NewTicker(time.Second * unaryStreams / time.Duration(perSecond))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := node.Check(ctx, &weirv1.CheckRequest{Path: "/l", User: strconv.Itoa(i % 20_000)}); err != nil {
			return
		}
	}
}

// press asks a node about keys of the rule load, without a pause, until ctx ends.
func press(ctx context.Context, node weirv1.LimiterClient, stream int) {
	const batch, users = 200, 20_000
	s, err := node.CheckStream(ctx)
	for at := stream * 7919; err == nil; at += batch {
		m := &weirv1.CheckColumns{}
		for i := at; i < at+batch; i++ {
			user := strconv.Itoa(i % users)
			m.Keys = append(append(m.Keys, "/l"...), user...)
			m.PathLengths, m.UserLengths = append(m.PathLengths, 2), append(m.UserLengths, uint32(len(user)))
			m.Costs = append(m.Costs, 1)
		}
		if err = s.Send(m); err == nil {
			_, err = s.Recv()
		}
	}
}

// columns charges one unit to each of n keys, on one stream, and returns what each has
// left.
func columns(t *testing.T, node weirv1.LimiterClient, n int) []uint64 {
	t.Helper()
	const batch = 1000
	stream, err := node.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		for from := 0; from < n; from += batch {
			m := &weirv1.CheckColumns{}
			for i := from; i < min(from+batch, n); i++ {
				user := strconv.Itoa(i)
				m.Keys = append(append(m.Keys, "/k"...), user...)
				m.PathLengths, m.UserLengths = append(m.PathLengths, 2), append(m.UserLengths, uint32(len(user)))
				m.Costs = append(m.Costs, 1)
			}
			if err := stream.Send(m); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	var left []uint64
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range m.Flags {
			if f&byte(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED) == 0 {
				t.Fatalf("key %d was not admitted: %d", len(left)+i, f)
			}
		}
		left = append(left, m.Remaining...)
	}
	if err := <-sent; err != nil || len(left) != n {
		t.Fatalf("%d of %d keys were answered, %v", len(left), n, err)
	}
	return left
}
