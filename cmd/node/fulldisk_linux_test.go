package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallDisk is a node whose data directory is on a file system of 1 MiB.
type smallDisk struct {
	*seat
	disk, filler string
}

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("NOT TESTED: a file system of 1 MiB cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	s := places(t, 1, cutRules, "--persist-interval", "1s", "--data-dir", filepath.Join(disk, "data"))[0]
	s.start(t)
	settle(t, []*seat{s})
	return &smallDisk{s, disk, filepath.Join(disk, "filler")}
}

// check reports whether a check of a user is admitted.
func (s *smallDisk) check(t *testing.T, user string) bool {
	t.Helper()
	_, text := asked(t, http.DefaultClient, http.MethodGet, "http://"+s.http+"/v1/check?path=/shut&user="+user, "")
	return strings.Contains(text, `"allowed":true`)
}

// charge has ada admitted so often.
func (s *smallDisk) charge(t *testing.T, times int) {
	t.Helper()
	for range times {
		if !s.check(t, "ada") {
			t.Fatal("ada is denied")
		}
	}
}

// fill fills the disk, and has more counted than fits then.
func (s *smallDisk) fill(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(s.filler, make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("2 MiB fit into 1 MiB")
	}
	for u := range 200 {
		if !s.check(t, fmt.Sprint("u", u)) {
			t.Fatalf("u%d is denied", u)
		}
	}
	s.shows(t, "weir_store_failing", 1)
}

// metric returns the value of a metric.
func (s *smallDisk) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	_, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics")
	_, rest, _ := strings.Cut(body, "\n"+name+" ")
	if _, err := fmt.Sscan(rest, &value); err != nil {
		t.Fatalf("%s: %v:\n%s", name, err, body)
	}
	return value
}

// shows waits until a metric has a value, or a higher one.
func (s *smallDisk) shows(t *testing.T, name string, value float64) {
	t.Helper()
	deadline := time.After(soon)
	for s.metric(t, name) < value {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%s never was %v:\n%s", name, value, s.log)
		}
	}
}

// recovers waits until everything is written again, ends the node with SIGKILL and starts it: what ada was admitted is
// there.
func (s *smallDisk) recovers(t *testing.T, left int) {
	t.Helper()
	s.until(s.log, "is written again")
	if s.metric(t, "weir_store_failing") != 0 {
		t.Error("the metric does not say that it is written again")
	}
	if n := strings.Count(s.log.String(), "cannot be written"); n != 1 {
		t.Errorf("%d lines say that it could not be written", n)
	}
	s.signal(syscall.SIGKILL)
	<-s.done
	s.start(t)
	settle(t, []*seat{s.seat})
	n := 0
	for s.check(t, "ada") {
		n++
	}
	if n != left {
		t.Errorf("%d are left, want %d", n, left)
	}
}

// While the disk is full, decisions go on, a metric and one line say so, and when there is room again everything is
// written anew: it is there after a kill.
func TestFullDisk(t *testing.T) {
	s := newSmallDisk(t)
	s.fill(t)
	s.shows(t, "weir_store_failures_total", 3)
	s.charge(t, 50)
	if err := os.Remove(s.filler); err != nil {
		t.Fatal(err)
	}
	s.recovers(t, 50)
}

// The same is true while the file system is read-only, as it is after errors of its own. A node that starts then says
// so, and ends.
func TestReadOnlyDisk(t *testing.T) {
	s := newSmallDisk(t)
	remount := func(flags uintptr) {
		t.Helper()
		deadline := time.After(soon)
		for {
			err := syscall.Mount("tmpfs", s.disk, "tmpfs", syscall.MS_REMOUNT|flags, "size=8m")
			if err == nil {
				return
			}
			if !errors.Is(err, syscall.EBUSY) { // a file is open for writing: the node closes it after the first failure
				t.Fatal(err)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-deadline:
				t.Fatal(err)
			}
		}
	}
	s.fill(t)
	remount(syscall.MS_RDONLY)
	failures := s.metric(t, "weir_store_failures_total")
	s.shows(t, "weir_store_failures_total", failures+2)
	s.charge(t, 50)
	remount(0)
	s.recovers(t, 50)
	s.signal(syscall.SIGTERM)
	<-s.done
	remount(syscall.MS_RDONLY)
	s.start(t)
	<-s.done
	if text := s.log.String(); !strings.Contains(text, "read-only file system") {
		t.Errorf("a start with a directory that is read-only: %s", text)
	}
}
