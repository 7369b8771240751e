package resp

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func reserving(o *Options) { o.Config.AllowRefunds = true }

// WEIR.CHECK with HOLD reserves, and the commands of settlements end and extend that. What is
// refused says why, and changes nothing.
func TestReservations(t *testing.T) {
	f := start(t, reserving)
	c := f.dial(t)
	left := func(n int) string { return fmt.Sprintf(" remaining %d ", n) }
	for i, want := range []struct{ ask, reply string }{
		{"WEIR.CHECK /plans ATTR plan gold COST 4 ID a HOLD 60000", left(1)},
		{"WEIR.CHECK /plans ATTR plan gold COST 4 ID a HOLD 60000", "repeated 1"},
		{"WEIR.CHECK /plans ATTR plan gold COST 2 ID b HOLD 60000", "allowed 0"},
		{"WEIR.EXTEND /plans ATTR plan gold ID a HOLD 90000 COST 5", "[state done estimate 5 over 0 retry_after_ms -1]"},
		{"WEIR.EXTEND /plans ATTR plan gold ID a HOLD 90000 COST 6", "[state denied estimate 0 over 0 retry_after_ms -1]"},
		{"WEIR.SETTLE /plans ATTR plan gold ID a ACTUAL 2", "[state done estimate 5 over 0 retry_after_ms -1]"},
		{"WEIR.SETTLE /plans ATTR plan gold ID a ACTUAL 2", "[state repeated estimate 0 over 0 retry_after_ms -1]"},
		{"WEIR.SETTLE /plans ATTR plan gold ID a ACTUAL 3", "-ERR "},
		{"WEIR.CANCEL /plans ATTR plan gold ID a", "-ERR "},
		{"WEIR.PEEK /plans ATTR plan gold", left(3)},
		{"weir.check /plans attr plan gold cost 3 id c hold 60000", left(0)},
		{"weir.cancel /plans attr plan gold id c", "[state done estimate 3 over 0 retry_after_ms -1]"},
		{"WEIR.PEEK /plans ATTR plan gold", left(3)},
		{"WEIR.SETTLE /plans ATTR plan gold ID d ACTUAL 1 IF_UNKNOWN ignore", "[state unknown "},
		{"WEIR.SETTLE /plans ATTR plan gold ID d ACTUAL 4 IF_UNKNOWN charge",
			"[state charged estimate 0 over 1 retry_after_ms -1]"},
		{"WEIR.CANCEL /none ID a", "[state unknown "},

		{"WEIR.CHECK /budget ATTR tokens 4 ATTR udollars 90 ID a HOLD 60000", left(1)},
		{"WEIR.SETTLE /budget ATTR tokens 4 ATTR udollars 90 ID a ACTUAL 3", "-ERR the costs differ"},
		{"WEIR.SETTLE /budget ID a ACTUAL tokens=2", `-ERR invalid: rule "money" takes its cost from attribute "udollars"`},
		{"WEIR.SETTLE /budget ID a ACTUAL tokens=2 ACTUAL udollars=3 ACTUAL x=1", "no rule that matches takes a cost from " +
			"attribute \"x\", which the settlement names: name those from which they do: tokens, udollars"},
		{"WEIR.SETTLE /budget ID a ACTUAL tokens=2 actual udollars=3", "[state done estimate 90 over 0 retry_after_ms -1]"},
		{"WEIR.PEEK /budget ATTR udollars 90", left(3)},
		{"WEIR.SETTLE /budget ID a ACTUAL tokens=2 ACTUAL tokens=3", "-ERR ACTUAL of attribute \"tokens\" is given twice"},
		{"WEIR.SETTLE /budget ID a ACTUAL tokens=2 ACTUAL 3", "-ERR ACTUAL says how many units were used"},
		{"WEIR.SETTLE /budget ID a ACTUAL tokens=much", "-ERR ACTUAL is \"much\": give a whole number"},
		{"WEIR.SETTLE /budget ID a ACTUAL 3 ACTUAL 3", "-ERR ACTUAL is given twice"},

		{"WEIR.SETTLE /plans ATTR plan gold ID a", "-ERR ACTUAL says how many units were used"},
		{"WEIR.SETTLE /plans ATTR plan gold ACTUAL 3", "-ERR invalid: the request has no id"},
		{"WEIR.SETTLE /plans ID a ACTUAL much", "-ERR ACTUAL is \"much\": give a whole number"},
		{"WEIR.SETTLE /plans ID a ACTUAL -3", "-ERR ACTUAL says how many units were used, from 0"},
		{"WEIR.SETTLE /plans ID a ACTUAL 9007199254740992",
			"-ERR invalid: the request is settled with 9007199254740992: give 0 to 9007199254740991 units"},
		{"WEIR.SETTLE /plans ID a ACTUAL 3 COST 3", "-ERR COST and HOLD are for reservations that begin or go on"},
		{"WEIR.SETTLE /plans ID a ACTUAL 3 IF_UNKNOWN die", "-ERR IF_UNKNOWN is \"die\": give charge or ignore"},
		{"WEIR.CANCEL /plans ID a HOLD 3", "-ERR COST and HOLD are for reservations that begin or go on"},
		{"WEIR.CANCEL /plans ID a ACTUAL 3", "-ERR \"ACTUAL\" is not known here: give " + cancelUsage},
		{"WEIR.EXTEND /plans ID a", "-ERR invalid: the reservation is to be extended by no time"},
		{"WEIR.EXTEND /plans ID a HOLD 86400001", "-ERR HOLD is 86400001: give 1 to 86400000 milliseconds"},
		{"WEIR.CHECK /plans ID a HOLD 0", "-ERR HOLD is 0: give 1 to 86400000 milliseconds"},
		{"WEIR.CHECK /plans HOLD 9", "-ERR invalid: "},
		{"WEIR.CHECK /plans ID " + strings.Repeat("x", 65) + " HOLD 9", "-ERR invalid: the id has 65 bytes"},
	} {
		if got := c.ask(want.ask); !strings.Contains(got, want.reply) {
			t.Errorf("case %d, %s: %s, want %s", i, want.ask, got, want.reply)
		}
	}
	if got := c.ask("WEIR.CHECK /towns USER eve COST 2 ID a HOLD 1000"); !strings.Contains(got, left(0)) {
		t.Error(got)
	}
	f.clock.move(time.Second)
	if got := c.ask("WEIR.PEEK /towns USER eve"); !strings.Contains(got, left(2)) {
		t.Errorf("after its end: %s", got)
	}
}

// Reservations need the permission to refund.
func TestReservationsNeedRefunds(t *testing.T) {
	var told auditor
	f := start(t, func(o *Options) { o.Config.Audit = &told })
	c := f.dial(t)
	asks := []string{
		"WEIR.CHECK /towns USER ada ID a HOLD 1000", "WEIR.SETTLE /towns USER ada ID a ACTUAL 2",
		"WEIR.CANCEL /towns USER ada ID a", "WEIR.EXTEND /towns USER ada ID a HOLD 1000",
	}
	for _, ask := range asks {
		if got := c.ask(ask); got != "-NOPERM "+errReserve {
			t.Errorf("%s: %s", ask, got)
		}
	}
	if got := c.ask("WEIR.PEEK /towns USER ada"); !strings.Contains(got, " remaining 2 ") {
		t.Error(got)
	}
	f = start(t, func(o *Options) { o.Config.Access, o.Config.Audit = access{}, &told })
	c = f.dial(t)
	c.ask("AUTH token-idle")
	for _, ask := range asks {
		if got := c.ask(ask); got != "-NOPERM this caller may not refund" {
			t.Errorf("%s: %s", ask, got)
		}
	}
	c.ask("AUTH token-a")
	if got := c.ask(asks[0]); !strings.Contains(got, " remaining 1 ") {
		t.Error(got)
	}
	c.ask("AUTH token-half") // may check all, and refund nothing of towns
	if got := c.ask(asks[0]); !strings.HasPrefix(got, "-NOPERM a rule that matches") || strings.Contains(got, "towns") ||
		!strings.Contains(told.why, "towns") {
		t.Errorf("the caller is told %s, the audit %s", got, told.why)
	}
	if got := c.ask("WEIR.CHECK /towns USER ada"); !strings.Contains(got, "allowed 1") {
		t.Error(got)
	}
	if n := len(told.told); n != 2*len(asks)+1 {
		t.Errorf("the audit was told of %v", told.told)
	}
}
