//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/certs/certstest"
)

// The old and the new gossip key of a rotation, one line of a file each.
const (
	oldGossipKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"
	newGossipKey = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=\n"
)

// keyed gives each seat a file with a gossip key of its own.
func keyed(t *testing.T, all []*seat) (files []string) {
	t.Helper()
	for _, s := range all {
		files = append(files, secret(t, oldGossipKey))
		s.args = append(s.args, "--gossip-key-file", files[len(files)-1])
	}
	return files
}

// rotateGossipKeys replaces the key in the files of all members, step by step.
func rotateGossipKeys(t *testing.T, all []*seat, files []string) {
	t.Helper()
	for i, keys := range []string{oldGossipKey + newGossipKey, newGossipKey + oldGossipKey, newGossipKey} {
		for j, s := range all {
			certstest.Replace(t, files[j], []byte(keys))
			within(t, s, "the gossip keys were loaded again", i+1)
		}
	}
}

// TestGossipKeysRotated gives three members another gossip key while they are asked. A
// file that has no key changes nothing. In the end a node with the old key is kept out,
// and one with the new key is let in.
func TestGossipKeysRotated(t *testing.T) {
	all := places(t, 3, clusterRules, "--audit", "stderr")
	files := keyed(t, all)
	surviving{2, func(t *testing.T, _ []*seat) []*seat {
		t.Helper()
		there := all[:2]
		certstest.Replace(t, files[0], []byte("no key\n"))
		within(t, all[0], "those before stay in force", 1)
		within(t, all[0], `"action":"gossip keys","outcome":"failed","over":"file","subject":"members"`, 1)
		rotateGossipKeys(t, there, files)
		within(t, all[0], `"action":"gossip keys","outcome":"done","over":"file","subject":"members"`, 3)
		for _, s := range there {
			// A node that stands still, for want of a processor, is taken for dead for a moment.
			if strings.Contains(s.log.String(), "a member died") && events(t, there, "late") == 0 {
				t.Errorf("%s took a member for dead", s.name)
			}
		}
		all[2].start(t)
		within(t, all[2], "another gossip key", 1)
		<-all[2].done
		certstest.Replace(t, files[2], []byte(newGossipKey))
		all[2].start(t)
		return all
	}}.on(t, all).judge(t)
}

// TestAllKeysRotated replaces the authority, all certificates and the gossip key of three
// members at once, while they are asked, and then restarts them one by one.
func TestAllKeysRotated(t *testing.T) {
	first, second := certstest.New(t, "first"), certstest.New(t, "second")
	all := places(t, 3, clusterRules, "--audit", "stderr")
	files, keys := certified(t, first, all), keyed(t, all)
	surviving{3, func(t *testing.T, _ []*seat) []*seat {
		t.Helper()
		loaded := func(times int) {
			t.Helper()
			for _, s := range all {
				within(t, s, "the peer certificate files were loaded again", times)
			}
		}
		for _, p := range files {
			certstest.Replace(t, p.CA, append(append([]byte{}, first.PEM...), second.PEM...))
		}
		rotateGossipKeys(t, all, keys)
		loaded(1)
		for i, s := range all {
			cert, key := second.Issue(t, certstest.Leaf{Name: s.name, URI: certs.MemberURI("weir", s.name)})
			certstest.Replace(t, files[i].Cert, cert)
			certstest.Replace(t, files[i].Key, key)
		}
		loaded(2)
		for _, p := range files {
			certstest.Replace(t, p.CA, second.PEM)
		}
		loaded(3)
		for _, s := range all {
			within(t, s, `"action":"certificates","outcome":"done","over":"file","subject":"members"`, 3)
		}
		return restart(t, all, all)
	}}.on(t, all).judge(t)
}

// Gossip that is altered, or invented by who has no key, changes nothing, and is in the audit.
func TestForeignGossipIsAudited(t *testing.T) {
	s := places(t, 1, clusterRules)[0]
	keyed(t, []*seat{s})
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	s.args = append(s.args, "--audit", audit)
	s.start(t)
	s.until(s.log, "the node is ready")
	c, err := net.Dial("udp", s.gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(append([]byte{1}, strings.Repeat("a member that is dead", 9)...)); err != nil {
		t.Fatal(err)
	}
	within(t, s, "refused gossip that is encrypted with another key", 1)
	s.signal(os.Interrupt)
	s.end(0) // the audit is written then
	lines, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"outcome":"refused","from":"` + c.LocalAddr().String() +
		`","over":"peer","why":"refused gossip`; !strings.Contains(string(lines), want) {
		t.Errorf("the audit lacks %s: %s", want, lines)
	}
}
