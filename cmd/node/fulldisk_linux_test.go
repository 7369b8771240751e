package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// While the disk is full, decisions go on, a metric and one line say so, and when there is room again everything is
// written anew: it is there after a kill.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("NOT TESTED: a file system of 1 MiB cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, 0) })
	s := places(t, 1, cutRules, "--persist-interval", "1s", "--data-dir", filepath.Join(disk, "data"))[0]
	s.start(t)
	settle(t, []*seat{s})
	check := func(user string) bool {
		t.Helper()
		_, text := asked(t, http.DefaultClient, http.MethodGet, "http://"+s.http+"/v1/check?path=/shut&user="+user, "")
		return strings.Contains(text, `"allowed":true`)
	}
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("2 MiB fit into 1 MiB")
	}
	shows := func(line string) {
		t.Helper()
		deadline := time.After(soon)
		for {
			if _, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics"); strings.Contains(body, line) {
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-deadline:
				t.Fatalf("the metrics never had %q:\n%s", line, s.log)
			}
		}
	}
	for u := range 200 {
		if !check(fmt.Sprint("u", u)) {
			t.Fatalf("u%d is denied", u)
		}
	}
	shows("weir_store_failing 1\n")
	shows("weir_store_failures_total 3\n")
	if n := strings.Count(s.log.String(), "cannot be written"); n != 1 {
		t.Errorf("%d lines say that the disk is full", n)
	}
	for range 50 {
		if !check("ada") {
			t.Fatal("ada is denied")
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	shows("weir_store_failing 0\n")
	s.until(s.log, "is written again")
	s.signal(syscall.SIGKILL)
	<-s.done
	s.start(t)
	settle(t, []*seat{s})
	left := 0
	for check("ada") {
		left++
	}
	if left != 50 {
		t.Errorf("%d of 50 are left", left)
	}
}
