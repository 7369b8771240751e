package envoy_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
)

const modelFile = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 700}, metadata: {weir: {estimate: 663}}}
  - {key: other, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: soft, rate_limit: {unit: hour, requests_per_unit: 700}, metadata: {weir: {estimate: 663}}, shadow_mode: true}
`

func reserves(mode envoy.Mode) func(*envoy.Options) {
	return func(o *envoy.Options) { o.ID, o.Mode, o.Config.AllowRefunds = "request_id", mode, true }
}

// A call with an id that only looks reserves the estimate, and the call that tells the hits
// settles it. What nobody settles comes back.
func TestReservations(t *testing.T) {
	for name, mode := range map[string]envoy.Mode{"compat": envoy.Compat, "atomic": envoy.Atomic} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, modelFile, reserves(mode))
			for i, c := range []struct {
				descriptors []string
				want        string
			}{
				{[]string{"user=ada hits=0 request_id=1"}, "ok; ok 700/hour left 37, 3600s"},
				{[]string{"user=ada hits=0 request_id=1"}, "ok; ok 700/hour left 37, 3600s"}, // a retry
				{[]string{"user=ada hits=0 request_id=2"}, "over; over 700/hour left 0, 3600s"},
				{[]string{"user=ada hits=412 request_id=1"}, "ok; ok 700/hour left 288, 3600s"},
				{[]string{"user=ada hits=412 request_id=1"}, "ok; ok 700/hour left 288, 3600s"},
				{[]string{"user=ada hits=9 request_id=1"}, "the id stands for 412 units"},
				{[]string{"user=ada hits=300 request_id=3"}, "ok; ok 700/hour left 0, 3600s"}, // not reserved: the use has happened
				{[]string{"user=ada hits=0"}, "over; over 700/hour left 0, 3600s"},

				// The two calls may have other descriptors beside this one.
				{[]string{"other=x", "user=bob hits=0 request_id=4"}, "ok; ok 10/hour left 9, 3600s; ok 700/hour left 37, 3600s"},
				{[]string{"user=bob hits=100 request_id=4"}, "ok; ok 700/hour left 600, 3600s"},

				// A request that another limit denies keeps no reservation.
				{[]string{"other=y hits=11", "user=eve hits=0 request_id=5"},
					"over; over 10/hour left " + map[envoy.Mode]string{envoy.Compat: "0", envoy.Atomic: "10"}[mode] +
						", 3600s; ok 700/hour left 700, 3600s"},
				{[]string{"user=eve hits=700"}, "ok; ok 700/hour left 0, 3600s"},

				// A call without an id leaves reservations as they are.
				{[]string{"user=fay hits=0 request_id=9"}, "ok; ok 700/hour left 37, 3600s"},
				{[]string{"user=fay hits=0"}, "ok; ok 700/hour left 37, 3600s"},
				{[]string{"user=fay hits=1"}, "ok; ok 700/hour left 36, 3600s"},
				{[]string{"user=fay hits=99 request_id=9"}, "ok; ok 700/hour left 600, 3600s"},

				// A denied request has reserved nothing, and is decided anew.
				{[]string{"other=z hits=10"}, "ok; ok 10/hour left 0, 3600s"},
				{[]string{"user=gus hits=0 request_id=10", "other=z"},
					"over; ok 700/hour left 700, 3600s; over 10/hour left 0, 3600s"},
				{[]string{"user=gus hits=0 request_id=10"}, "ok; ok 700/hour left 37, 3600s"},
				{[]string{"user=gus hits=100 request_id=10"}, "ok; ok 700/hour left 600, 3600s"},

				// A shadow limit denies nothing.
				{[]string{"soft=x hits=0 request_id=6"}, "ok; ok 700/hour left 37, 3600s"},
				{[]string{"soft=x hits=0 request_id=7"}, "ok; ok 700/hour left 0, 3600s"},
			} {
				if got := f.ask(1, c.descriptors...); !strings.Contains(got, c.want) {
					t.Errorf("case %d: %s, want %s", i, got, c.want)
				}
			}
			long := strings.Repeat("x", 60)
			for _, id := range []string{"\xff", long} { // ids that Envoy's clients may send
				if got := f.ask(1, "user="+id+" hits=0 request_id="+id); !strings.HasPrefix(got, "ok; ok 700/hour left 37") {
					t.Errorf("id %q: %s", id, got)
				}
				if got := f.ask(1, "user="+id+" hits=400 request_id="+id); !strings.HasPrefix(got, "ok; ok 700/hour left 300") {
					t.Errorf("id %q, settled: %s", id, got)
				}
			}
			if got := f.ask(1, "user=dan hits=0 request_id=8"); got != "ok; ok 700/hour left 37, 3600s" {
				t.Error(got)
			}
			f.node.Advance(10 * time.Minute)
			if got := f.ask(1, "user=dan hits=700"); got != "ok; ok 700/hour left 0, 3000s" {
				t.Errorf("after its end: %s", got)
			}
		})
	}
}

// Of five requests at once, each of which uses what was estimated, those pass that fit.
func TestRequestsAtOnceStayWithinTheLimit(t *testing.T) {
	f := newFixture(t, modelFile, reserves(envoy.Compat))
	var all sync.WaitGroup
	answers := make([]string, 5)
	for i := range answers {
		all.Go(func() { answers[i] = f.ask(1, "user=ada hits=0 request_id="+string(rune('a'+i))) })
	}
	all.Wait()
	passed := 0
	for _, a := range answers {
		if strings.HasPrefix(a, "ok") {
			passed++
		}
	}
	if passed != 1 {
		t.Errorf("%d passed: %v", passed, answers)
	}
}

// Without permission to refund, or without ids, files with estimates are refused.
func TestReservationsAreAllowed(t *testing.T) {
	c, err := config.Parse([]config.File{{Name: "test.yaml", Data: []byte(modelFile)}}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*envoy.Options){func(o *envoy.Options) {
		o.ID = "request_id"
	}, func(o *envoy.Options) { o.Config.AllowRefunds = true }} {
		err := newFixture(t, "", change).service.SetConfig(c)
		if err == nil || !strings.Contains(err.Error(),
			"has an estimate, and there are no reservations here: start the node with --envoy-id, and with --allow-refunds or "+
				"--permissions") {
			t.Error(err)
		}
	}
}
