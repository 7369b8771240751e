package cluster

import "testing"

// A save that begins at a look has not stood still since the look before; one that does nothing until the next look
// has.
func TestASaveThatBeginsHasNotStoodStill(t *testing.T) {
	var n numbers
	seen := n.progress.Load()
	if n.moved(&seen) {
		t.Error("nothing is done, and the disk has moved")
	}
	if n.begin() {
		t.Error("the disk was waited for before the save")
	}
	if !n.moved(&seen) {
		t.Error("a save began since the last look, and the disk stands still")
	}
	if n.moved(&seen) || !n.saving.Load() {
		t.Error("the save does nothing, and the disk has moved")
	}
}
