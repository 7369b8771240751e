package arith_test

import (
	"testing"

	"github.com/weirlimit/weir/limiter/arith"
)

// An id is in the memory that was lent for it, and in none that is shared with a clone.
func TestLendIsForOneCharge(t *testing.T) {
	var c arith.Charge
	var room arith.Idempotency
	c.Lend(&room)
	c.Identify().ID = 1
	d := c.Clone()
	c.Clear()
	if c.ID != nil {
		t.Error("Clear left an id")
	}
	c.Identify().ID = 2
	had := d.ID.ID
	d.Identify().ID = had + 2
	if c.ID != &room || c.ID.ID != 2 || d.ID.ID != 3 {
		t.Errorf("ids %+v and %+v", c.ID, d.ID)
	}
}
