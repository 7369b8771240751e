package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A log with lines of a megabyte is replayed; TestLongLinesAreNotKept counts what that keeps.
func TestLongLines(t *testing.T) {
	const lines = 5
	request := `10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /` + strings.Repeat("x", 1<<20) + "\n"
	rubbish := strings.Repeat("y", 1<<20) + "\n"
	rules, log := write(t, "rules.yaml", rulesText), write(t, "access.log", strings.Repeat(request+rubbish, lines))
	_, out, errs := weir(t, "", "replay", "--rules", rules, log)
	if !strings.Contains(out, fmt.Sprintf("requests\t%d\n", lines)) ||
		!strings.Contains(out, fmt.Sprintf("skipped_lines\t%d\n", lines)) {
		t.Fatalf("%s%.1000s", out, errs)
	}
}

// A reader that goes away, as head does, ends the program without a word.
func TestClosedPipe(t *testing.T) {
	rules, log := write(t, "rules.yaml", rulesText), write(t, "access.log", logText)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	finish(t, r)
	cmd := exec.CommandContext(t.Context(), program, "replay", "--rules", rules, log)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &errs
	err = cmd.Run()
	finish(t, w)
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGPIPE || errs.Len() > 0 {
		t.Errorf("ended with %v and %q", err, errs.String())
	}
}

func TestFullDisk(t *testing.T) {
	rules, log := write(t, "rules.yaml", rulesText), write(t, "access.log", logText)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer finish(t, full)
	for want, args := range map[string][]string{
		"weir: the report cannot be written":                         {"replay", "--rules", rules, log},
		"weir: standard output cannot be written: write /dev/stdout": {"check", "--help"},
	} {
		cmd := exec.CommandContext(t.Context(), program, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &errs
		err = cmd.Run()
		if cmd.ProcessState.ExitCode() != 1 || errs.String() != want+": no space left on device\n" {
			t.Errorf("%q ended with %v and %q", args, err, errs.String())
		}
	}
}

// onTerminal runs the program with its output on a terminal of 100 columns.
func onTerminal(t *testing.T, env []string, args ...string) string {
	t.Helper()
	master, slave := openTerminal(t)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = slave, slave
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	finish(t, slave)
	// The terminal is at its end, with an error, when its last writer is gone.
	out, _ := io.ReadAll(master)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal to be had: %v", err)
	}
	t.Cleanup(func() { finish(t, master) })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal to be had: %v", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// Colour and columns come on a terminal, and colour goes where it is not wanted.
func TestTerminal(t *testing.T) {
	rules, log := write(t, "rules.yaml", rulesText), write(t, "access.log", logText)
	got := onTerminal(t, []string{"NO_COLOR=", "TERM=xterm"}, "replay", "--rules", rules, log)
	if !strings.Contains(got, "\x1b[31m") || !strings.Contains(got, "25.0 %") {
		t.Errorf("%q", got)
	}
	for _, env := range [][]string{{"NO_COLOR=1", "TERM=xterm"}, {"NO_COLOR=", "TERM=dumb"}} {
		got := onTerminal(t, env, "replay", "--rules", rules, log)
		if strings.Contains(got, "\x1b") || !strings.Contains(got, "25.0 %") {
			t.Errorf("%v: %q", env, got)
		}
	}
}

// finish closes what a test has opened.
func finish(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
