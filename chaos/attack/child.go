//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Attacker is a process of its own that attacks, at the lowest priority, so that what
// nodes and honest clients feel is what the attacks cost the nodes.
type Attacker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// Flag is what the program must be started with to be the attacker.
const Flag = "-attacker"

// Start starts this program again as the attacker of a cluster. End ends it.
func Start(ctx context.Context, c *Cluster) (*Attacker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// More than there are priorities, since this process may have a high one itself.
	cmd := exec.CommandContext(ctx, "nice", "-n", "39", self, Flag)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	a := &Attacker{cmd: cmd, in: in, out: json.NewDecoder(out)}
	if err := json.NewEncoder(in).Encode(c); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return a, nil
}

// End ends the attacks and returns what was done, by the name of the attack.
func (a *Attacker) End() (done map[string]Tally, err error) {
	_ = a.in.Close() // the attacker ends when there is nothing more to read
	err = a.out.Decode(&done)
	if ended := a.cmd.Wait(); ended != nil {
		err = errors.Join(fmt.Errorf("the attacker failed: %w", ended), err)
	}
	return done, err
}

// Serve is the attacker: it reads the cluster from in, attacks until in ends or the
// context does, and writes what was done to out.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	read := json.NewDecoder(in)
	var c Cluster
	if err := read.Decode(&c); err != nil {
		return fmt.Errorf("the attacker was not told whom to attack: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	done, err := Run(ctx, &c)
	return errors.Join(err, json.NewEncoder(out).Encode(done))
}
