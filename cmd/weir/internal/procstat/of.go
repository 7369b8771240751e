// Package procstat tells what processes have used of the processors.
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

// Of returns what another process has used so far, all its threads together, to
// 10 ms. It needs the proc file system of Linux.
func Of(pid int) (time.Duration, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("the processor time of process %d cannot be read: %w; is it running, on this machine?", pid, bare(err))
	}
	used, err := parseStat(string(data))
	if err != nil {
		return 0, fmt.Errorf("the processor time of process %d cannot be read from %s: %w", pid, name, err)
	}
	return used, nil
}

// bare is the reason alone, without the file's name.
func bare(err error) error {
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// parseStat adds up the user and the system time of a line of /proc/PID/stat. The
// name of the process, in brackets, may hold anything.
func parseStat(line string) (time.Duration, error) {
	const user, system = 11, 12 // fields after the name
	end := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[end+1:])
	if end < 0 || len(fields) <= system {
		return 0, errors.New("it is not of the form that is known")
	}
	sum := uint64(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseUint(fields[i], 10, 62)
		if err != nil {
			return 0, fmt.Errorf("field %d after the name is no number: %w", i+1, err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
