//go:build linux

package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Attacker is a process of its own that attacks. It gets only the time that no other
// process wants, so that what nodes and honest clients feel is what the attacks cost the
// nodes. The lowest priority, nice 19, is not enough on two cores: its slices doubled the
// p99 of honest clients by themselves.
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
	cmd := exec.CommandContext(ctx, "chrt", "--idle", "0", self, Flag)
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

// Done returns what was done so far, by the name of the attack.
func (a *Attacker) Done() (done map[string]Tally, err error) {
	if _, err := a.in.Write([]byte("\n")); err != nil {
		return nil, fmt.Errorf("the attacker has ended: %w", err)
	}
	return done, a.out.Decode(&done)
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
// context does, and writes what was done to out: then, and for each byte of in so far.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	first, err := lines.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var c Cluster
	if err := json.Unmarshal(first, &c); err != nil {
		return fmt.Errorf("the attacker was not told whom to attack: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := make(chan chan<- map[string]Tally)
	writer := &teller{out: json.NewEncoder(out)}
	go func() {
		defer cancel()
		writer.answer(ctx, lines, asked)
	}()
	done, err := Run(ctx, &c, asked)
	if done == nil {
		return err // nothing was attacked
	}
	return errors.Join(err, writer.write(done))
}

// teller writes what was done. It is safe for concurrent use.
type teller struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (w *teller) write(done map[string]Tally) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(done)
}

// answer writes what was done so far for each byte of in, until in or the context ends.
func (w *teller) answer(ctx context.Context, in io.ByteReader, asked chan<- chan<- map[string]Tally) {
	for {
		if _, err := in.ReadByte(); err != nil {
			return // nobody asks any more
		}
		done := make(chan map[string]Tally, 1)
		select {
		case asked <- done:
			if w.write(<-done) != nil {
				return // nobody reads any more
			}
		case <-ctx.Done():
			return
		}
	}
}
