//go:build linux

package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage is what the kernel says that a process takes.
type Usage struct {
	// Resident is its memory and Peak the most of it since [Node.ForgetPeak], in bytes.
	Resident, Peak int64
	// FDs are its open files, of which Sockets are connections and listeners.
	FDs, Sockets int
	// Logged is the bytes of its log.
	Logged int64
}

// errNoProcess: what a container takes is not known here.
var errNoProcess = errors.New("the node is no process of this machine")

// pid returns the process of the node.
func (n *Node) pid() (int, *process, error) {
	p, ok := n.body.(*program)
	if !ok {
		return 0, nil, errNoProcess
	}
	now := p.now.Load()
	if now == nil || now.ended() {
		return 0, nil, fmt.Errorf("%s does not run", n.Name)
	}
	return now.cmd.Process.Pid, now, nil
}

// Usage returns what the node takes. It must be a process.
func (n *Node) Usage() (u Usage, err error) {
	pid, p, err := n.pid()
	if err != nil {
		return u, err
	}
	if u.Resident, u.Peak, err = memoryOf(pid); err != nil {
		return u, err
	}
	if u.FDs, u.Sockets, err = filesOf(pid); err != nil {
		return u, err
	}
	info, err := os.Stat(p.log)
	if err != nil {
		return u, err
	}
	u.Logged = info.Size()
	return u, nil
}

// ForgetPeak lets the peak of the node's memory begin anew, at what it takes now.
func (n *Node) ForgetPeak() error {
	pid, _, err := n.pid()
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// memoryOf returns VmRSS and VmHWM of a process, in bytes.
func memoryOf(pid int) (resident, peak int64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		to := map[string]*int64{"VmRSS": &resident, "VmHWM": &peak}[name]
		if to == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		*to = kib << 10
	}
	if resident == 0 || peak == 0 {
		return 0, 0, fmt.Errorf("the kernel says no memory of process %d", pid)
	}
	return resident, peak, nil
}

// filesOf counts the open files of a process, and the sockets among them.
func filesOf(pid int) (files, sockets int, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	all, err := os.ReadDir(dir)
	if err != nil {
		return 0, 0, err
	}
	for _, f := range all {
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	return len(all), sockets, nil
}
