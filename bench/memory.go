package bench

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Memory is what keys take, in bytes of resident memory per key, above what the
// process had before it made the limiter.
type Memory struct {
	// Keys were filled in, each asked for once.
	Keys int
	// Filled is right after the last key, garbage included.
	Filled float64
	// Collected is after two collections, which leave to the process whatever
	// the runtime does not give back at once.
	Collected float64
	// Returned is after the runtime has given back all it can.
	Returned float64
	// Peak is the most at any time.
	Peak float64
}

// MeasureMemory fills a contender with keys. It is meant for a process that has
// done nothing else, and works where Linux's /proc is.
func MeasureMemory(c Contender, s Setup) (m Memory, err error) {
	if c.Keyless {
		return m, fmt.Errorf("%s holds no keys", c.Name)
	}
	debug.FreeOSMemory()
	before, _, err := resident()
	if err != nil {
		return m, err
	}
	t, err := NewTrial(c, s)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	m.Keys = s.Keys.Len()
	steps := []struct {
		to     *float64
		before func()
	}{
		{&m.Filled, func() {}},
		{&m.Collected, func() { runtime.GC(); runtime.GC() }},
		{&m.Returned, debug.FreeOSMemory},
	}
	for _, step := range steps {
		step.before()
		now, peak, err := resident()
		if err != nil {
			return m, err
		}
		*step.to = float64(now-before) / float64(m.Keys)
		m.Peak = float64(peak-before) / float64(m.Keys)
	}
	return m, t.Verify()
}

// resident returns the process's resident memory and the most it ever had, in
// bytes.
func resident() (now, peak int64, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, fmt.Errorf("resident memory is read from /proc, which Linux has: %w", err)
	}
	if now, err = statusField(string(text), "VmRSS:"); err != nil {
		return 0, 0, err
	}
	peak, err = statusField(string(text), "VmHWM:")
	return now, peak, err
}

// statusField returns a field of /proc/self/status, in bytes.
func statusField(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/self/status: %q is no size: %w", strings.TrimSpace(line), err)
		}
		return kilobytes << 10, nil
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", name)
}
