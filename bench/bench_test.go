package bench

import "testing"

// BenchmarkCheck is a look at all contenders, one after the other. For figures
// that can be compared use cmd/compare, which takes them in turn.
func BenchmarkCheck(b *testing.B) {
	keys, err := NewKeys(100_000)
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range []Variant{Admitted, Half} {
		for _, c := range Contenders() {
			if v == Half && c.Floor {
				continue
			}
			b.Run(string(v)+"/"+c.Name, func(b *testing.B) {
				b.ReportAllocs()
				t, err := NewTrial(c, Setup{Keys: keys, Variant: v})
				if err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				if _, err := t.Run(b.N/len(t.workers) + 1); err != nil {
					b.Error(err)
				}
				b.StopTimer()
				if err := t.Verify(); err != nil {
					b.Error(err)
				}
				if err := t.Close(); err != nil {
					b.Error(err)
				}
			})
		}
	}
}
