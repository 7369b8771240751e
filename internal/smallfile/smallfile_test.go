package smallfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return name
}

func TestRead(t *testing.T) {
	name := write(t, 0o666, "12345")
	if got, err := Read("rules file", name, 5); err != nil || string(got) != "12345" {
		t.Errorf("%q, %v", got, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(name, link); err == nil {
		if got, err := Read("rules file", link, 5); err != nil || string(got) != "12345" {
			t.Errorf("through a link: %q, %v", got, err)
		}
	}
	for most, want := range map[int]string{4: "0 KiB", 2048: "2 KiB", 3 << 20: "3 MiB"} {
		if err := os.Truncate(name, int64(most)+1); err != nil {
			t.Fatal(err)
		}
		if _, err := Read("rules file", name, most); err == nil ||
			!strings.Contains(err.Error(), "rules file "+name+" is larger than "+want) {
			t.Error(err)
		}
	}
	if _, err := Read("rules file", filepath.Dir(name), 5); err == nil ||
		!strings.Contains(err.Error(), "is a directory; name a regular file") {
		t.Error(err)
	}
	if _, err := Read("rules file", name+".none", 5); err == nil ||
		!strings.Contains(err.Error(), "rules file "+name+".none cannot be opened: ") ||
		strings.Count(err.Error(), name) != 1 {
		t.Error(err)
	}
}

// TestNotAllowed: the error of a file that may not be read says what to do. (The test may run
// as root, who may read every file.)
func TestNotAllowed(t *testing.T) {
	err := opening("rules file", "/r.yaml", &fs.PathError{Op: "open", Path: "/r.yaml", Err: fs.ErrPermission})
	if want := "rules file /r.yaml cannot be opened: permission denied; give the user of this process the right to " +
		"read it"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}
