package metrics

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

func TestSettlements(t *testing.T) {
	m, r := open(t, Options{})
	if f := family(t, r, "weir_settlements_total"); f != nil {
		t.Errorf("before any: %v", f)
	}
	for state := limiter.AmendDone; state <= limiter.AmendFull; state++ {
		m.settled("tokens", false, state)
	}
	m.settled("tokens", true, limiter.AmendDone)
	m.settled("tokens", true, limiter.AmendDenied)
	m.settled("other rule", false, limiter.AmendDone)
	want(t, r, `
# HELP weir_settlements_total What was done with reservations, by the rule of their first key: settled (cancelled, too), extended, or the reason why not.
# TYPE weir_settlements_total counter
weir_settlements_total{result="charged",rule="tokens"} 1
weir_settlements_total{result="denied",rule="tokens"} 2
weir_settlements_total{result="extended",rule="tokens"} 1
weir_settlements_total{result="final",rule="tokens"} 1
weir_settlements_total{result="full",rule="tokens"} 1
weir_settlements_total{result="repeated",rule="tokens"} 1
weir_settlements_total{result="settled",rule="other rule"} 1
weir_settlements_total{result="settled",rule="tokens"} 1
weir_settlements_total{result="unknown",rule="tokens"} 1
`, "weir_settlements_total")
}
