// Package procstat reports the processor time of processes.
package procstat

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat, on every Linux.
const tick = 10 * time.Millisecond

// Of returns the processor time that another process has used so far, in all its
// threads, exact to 10 ms. It needs Linux's proc file system.
func Of(pid int) (time.Duration, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("the processor time of process %d cannot be read: %w; is it running, on this machine?", pid,
			bare(err))
	}
	used, err := parseStat(string(data))
	if err != nil {
		return 0, fmt.Errorf("the processor time of process %d cannot be read from %s: %w", pid, name, err)
	}
	return used, nil
}

// bare returns only the reason of a file's error, without the name.
func bare(err error) error {
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// parseStat sums user and system time in a line of /proc/PID/stat. The name of the
// process, in brackets, may contain anything.
func parseStat(line string) (time.Duration, error) {
	const user, system = 11, 12 // fields after the name
	end := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[end+1:])
	if end < 0 || len(fields) <= system {
		return 0, errors.New("its form is not known")
	}
	sum := uint64(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseUint(fields[i], 10, 62)
		if err != nil {
			return 0, fmt.Errorf("field %d after the name is not a number: %w", i+1, err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
