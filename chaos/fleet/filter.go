//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// set notes a wish and tells the kernel of who is to hear less, or more again.
func (s *containers) set(ctx context.Context, from, to int, l netlab.Link) error {
	if whole := (netlab.Link{Cut: l.Cut, Blocked: l.Blocked}); l.String() != whole.String() {
		return fmt.Errorf("containers have no link that is %s: %s", l.String(), Containers{}.Lacks(Shapes))
	}
	s.mu.Lock()
	if l.Cut || len(l.Blocked) > 0 {
		s.wishes[[2]int{from, to}] = l
	} else {
		delete(s.wishes, [2]int{from, to})
	}
	s.mu.Unlock()
	return s.nodes[to].filter(ctx)
}

func (s *containers) heal(ctx context.Context) error {
	s.mu.Lock()
	broken := len(s.wishes) > 0
	clear(s.wishes)
	s.mu.Unlock()
	if !broken {
		return nil
	}
	return s.filterAll(ctx)
}

// again tells the kernel what is cut when a node has started, which may be at
// another address.
func (s *containers) again(ctx context.Context) error {
	s.mu.Lock()
	broken := len(s.wishes) > 0
	s.mu.Unlock()
	if !broken {
		return nil
	}
	return s.filterAll(ctx)
}

func (s *containers) filterAll(ctx context.Context) error {
	var err error
	for _, b := range s.nodes {
		err = errors.Join(err, b.filter(ctx))
	}
	return err
}

// table is what is dropped of what arrives at a node: all of a node whose link to
// it is cut, or what is from or to a port. What clients send comes from another
// address. Only what arrives is filtered: a sender is told of what it may not send.
func (s *containers) table(to int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	b.WriteString("*filter\n:INPUT ACCEPT [0:0]\n")
	for from, n := range s.nodes {
		l, broken := s.wishes[[2]int{from, to}]
		_, host := n.process()
		if !broken || host == "" {
			continue
		}
		if l.Cut {
			fmt.Fprintf(&b, "-A INPUT -s %s -j DROP\n", host)
		}
		for _, port := range l.Blocked {
			for _, over := range []string{"tcp", "udp"} {
				fmt.Fprintf(&b, "-A INPUT -s %s -p %s --dport %d -j DROP\n", host, over, port)
				fmt.Fprintf(&b, "-A INPUT -s %s -p %s --sport %d -j DROP\n", host, over, port)
			}
		}
		fmt.Fprintf(&b, "-A INPUT -s %s -j ACCEPT\n", host) // which the kernel counts
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// filter replaces the whole table of a container's network namespace at once.
// The namespace, and so the table, ends with the container.
func (b *container) filter(ctx context.Context) error {
	b.filtering.Lock()
	defer b.filtering.Unlock()
	pid, _ := b.process()
	if pid == 0 {
		return nil // it is told when it starts
	}
	err := b.restore(ctx, pid)
	if err == nil {
		return nil
	}
	if _, gone := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid)); gone != nil {
		return nil // it ended meanwhile
	}
	return err
}

// restore tells the kernel what is dropped from now on.
func (b *container) restore(ctx context.Context, pid int) error {
	return b.within(pid, func() error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "iptables-restore")
		cmd.Stdin = strings.NewReader(b.at.table(b.index))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("iptables-restore in the network of %s: %w: %s", b.name, err, out)
		}
		return nil
	})
}

// counts asks the kernel of who was to hear less how many packets it dropped since it
// was told to, and how many not.
func (s *containers) counts(ctx context.Context, from, to int) (c netlab.Counts, err error) {
	b := s.nodes[to]
	_, host := s.nodes[from].process()
	pid, _ := b.process()
	if pid == 0 || host == "" {
		return c, nil
	}
	b.filtering.Lock()
	defer b.filtering.Unlock()
	err = b.within(pid, func() error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, "iptables-save", "-c", "-t", "filter").Output()
		if err != nil {
			return fmt.Errorf("iptables-save in the network of %s: %w", b.name, err)
		}
		c, err = counted(string(out), host)
		return err
	})
	return c, err
}

// counted reads, of what iptables-save -c says, what became of the packets of a host.
func counted(saved, host string) (c netlab.Counts, err error) {
	for _, m := range regexp.MustCompile(`(?m)^\[(\d+):\d+\] -A INPUT -s `+regexp.QuoteMeta(host)+
		`(?:/32)? .*-j (DROP|ACCEPT)$`).FindAllStringSubmatch(saved, -1) {
		n, e := strconv.ParseUint(m[1], 10, 64)
		err = errors.Join(err, e)
		if m[2] == "DROP" {
			c.Dropped += n
		} else {
			c.Carried += n
		}
	}
	return c, err
}

// within calls f in the network of a container's process.
func (b *container) within(pid int, f func() error) error {
	// An engine of another machine, or in a virtual one, has other processes.
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return err
	}
	if !strings.Contains(string(mounts), b.id) { // as that of its /etc/hosts
		return fmt.Errorf("process %d is not %s: the engine must run on this machine for its network to be cut", pid, b.name)
	}
	space, err := netlab.Of(pid)
	if err != nil {
		return err
	}
	return errors.Join(space.Do(f), space.Close())
}
