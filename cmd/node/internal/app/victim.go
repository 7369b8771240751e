package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/cmd/node/internal/demo"
)

// victimName is the name of the member that the demo kills, joinsIn how long it may take to join.
const (
	victimName = "node-4"
	joinsIn    = 30 * time.Second
)

// startVictim starts a member in a process of its own, since only a process can be killed, and waits until
// it owns its part of the counters. end ends it in any case.
func startVictim(ctx context.Context, others demoServers) (v *demo.Victim, end func(), err error) {
	end = func() {}
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return nil, end, fmt.Errorf("the member that is killed needs a directory: %w", err)
	}
	end = func() { _ = os.RemoveAll(dir) }
	rules := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, demo.Rules, 0o600); err != nil {
		return nil, end, fmt.Errorf("the member that is killed needs its rules: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, end, fmt.Errorf("the member that is killed is this program, which is not found: %w", err)
	}
	free := "127.0.0.1:0"
	//nolint:gosec // it is this program
	cmd := exec.CommandContext(ctx, self, "serve", "--rules", rules, "--name", victimName, "--join",
		others[0].Node().Cluster().Members()[0].Address, "--peer-addr", free, "--gossip-addr", free, "--http-addr", free,
		"--grpc-addr", free, "--admin-addr", "off", "--health-addr", "off", "--log-level", "error")
	if err := cmd.Start(); err != nil {
		return nil, end, fmt.Errorf("the member that is killed does not start: %w", err)
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it was killed, or says nothing that matters here
		close(gone)
	}()
	kill := func() error {
		err := cmd.Process.Kill()
		<-gone
		if errors.Is(err, os.ErrProcessDone) {
			err = errors.New("its process has ended by itself")
		}
		return err
	}
	end = func() {
		_ = kill() // it may be dead already
		_ = os.RemoveAll(dir)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(joinsIn)
	defer late.Stop()
	for !together(others, demoNodes+1) {
		select {
		case <-tick.C:
		case <-gone:
			return nil, end, errors.New("the member that is to be killed has ended by itself")
		case <-late.C:
			return nil, end, fmt.Errorf("the member that is to be killed has not joined within %v", joinsIn)
		case <-ctx.Done():
			return nil, end, ctx.Err()
		}
	}
	return &demo.Victim{Name: victimName, Kill: kill}, end, nil
}

// together reports whether so many members are active, and all that these servers own has its heir.
func together(servers demoServers, members int) bool {
	for _, s := range servers {
		st, ok := s.Node().Cluster().Stats()
		if !ok || st.Members["active"] != members || st.Unsettled > 0 {
			return false
		}
	}
	return true
}
