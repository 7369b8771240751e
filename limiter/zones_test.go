package limiter_test

import (
	"sync"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// A variant differs in the zone of the limits that have it from the request, and is made
// once, whoever asks.
func TestZoned(t *testing.T) {
	make := func(s limiter.Spec) *limiter.Limit {
		l := limitertest.Limit(t, s)
		return l
	}
	day := make(limiter.Spec{Limit: 5, Calendar: limiter.CalendarDay, Zone: "Europe/Berlin"})
	month := make(limiter.Spec{Limit: 5, Calendar: limiter.CalendarMonth, Zone: "Europe/Berlin", AnchorDay: 31})
	plain := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{day, month}, OnUnreachable: limiter.UnreachableClosed,
		MaxShare: 7}
	r := plain.Zoned([]int{1})
	if r.ID() != plain.ID() || r.Zone() != "" {
		t.Errorf("%+v", r)
	}
	for _, zone := range []string{"", "Europe/Atlantis", "europe/berlin", "../x"} {
		if v, ok := r.In(zone); ok || v != r {
			t.Errorf("%q: %+v, %v", zone, v, ok)
		}
	}
	if v, ok := r.In("Europe/Berlin"); !ok || v != r {
		t.Errorf("the default: %+v, %v", v, ok)
	}
	if v, ok := plain.In("Asia/Tokyo"); ok || v != plain {
		t.Errorf("a rule without zones: %+v, %v", v, ok)
	}
	var all [8]*limiter.Rule
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() { all[i], _ = r.In("Asia/Tokyo") })
	}
	wait.Wait()
	for _, v := range all {
		if v != all[0] {
			t.Error("a variant was made twice")
		}
	}
	v := all[0]
	if v.Zone() != "Asia/Tokyo" || v.Limits[0] != day || v.Limits[1].Spec().Zone != "Asia/Tokyo" ||
		v.Limits[1].Spec().AnchorDay != 31 ||
		v.Limits[1].Name() != "month" || v.OnUnreachable != limiter.UnreachableClosed || v.MaxShare != 7 || v.ID() == r.ID() {
		t.Errorf("%+v", v)
	}
	if other, ok := v.In("America/Lima"); !ok || other.Zone() != "America/Lima" {
		t.Errorf("a variant of a variant: %+v", other)
	}
	if n := testing.AllocsPerRun(100, func() { r.In("Asia/Tokyo"); r.In("Asia/Nowhere") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
