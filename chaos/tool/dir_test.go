package tool

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// TestMain is also the process that is killed: it makes a directory, says where,
// and waits.
func TestMain(m *testing.M) {
	if os.Getenv("WEIR_DIR_MAKER") == "" {
		os.Exit(m.Run())
	}
	d, err := NewDir()
	if err != nil {
		panic(err)
	}
	if _, err := os.Stdout.WriteString(d.Path + "\n"); err != nil {
		panic(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// maker starts such a process, and returns where its directory is.
func maker(t *testing.T, within string) (path string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "WEIR_DIR_MAKER=1", "TMPDIR="+within)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	path = line[:len(line)-1]
	if err := os.WriteFile(filepath.Join(path, "node"), []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
	}
}

// What a process left that was killed is removed by the next; what one has that
// lives is not, nor what is called otherwise, nor what a link leads to.
func TestWhatTheDeadLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("directories are locked on Linux alone")
	}
	within := t.TempDir()
	t.Setenv("TMPDIR", within)
	dead, kill := maker(t, within)
	alive, end := maker(t, within)
	defer end()
	kill()
	other := filepath.Join(within, "chaos-of-another")
	link := filepath.Join(within, prefix+"link")
	for _, err := range []error{os.Mkdir(other, 0o700), os.Symlink(other, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := NewDir()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{dead: false, alive: true, other: true, link: true, d.Path: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	if _, err := os.Stat(filepath.Join(alive, "node")); err != nil {
		t.Errorf("what a process has that lives was removed: %v", err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path); !os.IsNotExist(err) {
		t.Errorf("it was removed and is still there: %v", err)
	}
}
