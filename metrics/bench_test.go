package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Counting is on the path of every check: it allocates nothing.
func TestAllocations(t *testing.T) {
	m, _ := open(t, Options{})
	fill(m)
	for name, f := range map[string]func(){
		"Checked": func() { m.checked(1, "towns", limiter.SourceOwner, true, false) },
		"Served":  func() { m.Served("Check", "OK", time.Millisecond) },
		"Refused": func() { m.refused(limiter.ErrInvalid) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkChecked(b *testing.B) {
	for _, rules := range []int{1, 10, maxRules} {
		m, _ := open(b, Options{})
		names := make([]string, rules)
		for i := range names {
			names[i] = fmt.Sprint("rule ", i)
			m.checked(1, names[i], limiter.SourceOwner, true, false)
		}
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				m.checked(1, names[i], limiter.SourceOwner, true, false)
				if i++; i == rules {
					i = 0
				}
			}
		})
		b.Run(fmt.Sprintf("rules=%d/parallel", rules), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for i := 0; p.Next(); {
					m.checked(1, names[i], limiter.SourceOwner, true, false)
					if i++; i == rules {
						i = 0
					}
				}
			})
		})
	}
}

func BenchmarkServed(b *testing.B) {
	m, _ := open(b, Options{})
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			m.Served("Check", "OK", 80*time.Microsecond)
		}
	})
}

func BenchmarkScrape(b *testing.B) {
	m, r := open(b, Options{})
	for i := range 100 {
		m.checked(1, fmt.Sprint("rule ", i), limiter.SourceOwner, true, false)
	}
	for b.Loop() {
		if _, err := r.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
