//go:build !linux

package compose

import "testing"

// testChaos needs the kernel that containers run on.
func (e *engine) testChaos(t *testing.T) {
	t.Helper()
	aloud("\n*** %s is NOT run: containers are broken on Linux only ***\n\n", t.Name())
}
