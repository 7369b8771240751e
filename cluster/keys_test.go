package cluster

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/cluster/gossip"
)

// TestGossipKeysFollowTheirFile changes the file of gossip keys: what fits is put into
// force, what does not is logged once.
func TestGossipKeysFollowTheirFile(t *testing.T) {
	const old, next = "MDEyMzQ1Njc4OTAxMjM0NQ==\n", "NTQzMjEwOTg3NjU0MzIxMA==\n"
	file := filepath.Join(t.TempDir(), "gossip.key")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(old)
	c := Config{GossipKeyFile: file}
	if err := c.loadGossipKeys(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := &protection{member: &member{config: c, log: slog.New(slog.NewTextHandler(&log, nil))}}
	var err error
	v := newVirtual()
	m.member.gossip, err = gossip.Open(t.Context(), gossip.Config{
		Name: "a", Instance: 1, ClusterName: "weir", BindAddr: "127.1.0.1:7946", Keys: c.GossipKeys,
		Logger: slog.New(slog.DiscardHandler),
		Listen: func(at netip.AddrPort) (memberlist.NodeAwareTransport, error) { return v.gossip(at) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.member.gossip.Close()
	have, problem := c.GossipKeys, ""
	for i, row := range []struct {
		text string
		keys int
		says string
	}{
		{old, 1, ""},
		{"# both\n" + old + "\n" + next, 2, "were loaded again"},
		{old + next, 2, ""},
		{next + old, 2, "were loaded again"},
		{"", 2, "has no key"},
		{"", 2, ""}, // the same problem is logged once
		{old + "b64\n", 2, "line 2 is not a key"},
		{old + old, 2, "is given twice"},
		{strings.Repeat(old, 9), 2, "9 keys, and 8 are the most"},
		{next, 1, "were loaded again"},
		{"", 1, "has no key"},
		{next, 1, "valid again, with the keys that are in force"},
		{next, 1, ""},
	} {
		log.Reset()
		write(row.text)
		have, problem = m.reloadGossipKeys(have, problem, func() bool { return true })
		if len(have) != row.keys || row.says == "" && log.Len() > 0 || !strings.Contains(log.String(), row.says) {
			t.Errorf("step %d: %d keys, and it says %q, want %q", i+1, len(have), &log, row.says)
		}
		for _, key := range []string{old, next} {
			if strings.Contains(log.String(), strings.TrimSpace(key)) {
				t.Errorf("step %d: the log has a key", i+1)
			}
		}
	}
	log.Reset()
	write(old)
	have, problem = m.reloadGossipKeys(have, problem, func() bool { return true })
	if id := keyID(have[0]); !strings.Contains(log.String(), "encrypts="+id) || len(id) != 8 {
		t.Errorf("it does not name the key %s: %s", id, &log)
	}
	// A file that is caught half written can have a key of 24 bytes in place of one of 32.
	const long = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"
	log.Reset()
	write(long[:32])
	before := have
	have, problem = m.reloadGossipKeys(have, problem, func() bool { write(long); return true })
	if &have[0] != &before[0] || log.Len() > 0 {
		t.Errorf("half a key is in force: %s", &log)
	}
	if have, _ = m.reloadGossipKeys(have, problem, func() bool { return false }); &have[0] != &before[0] {
		t.Error("keys are put into force at a member that has ended")
	}
	if have, _ = m.reloadGossipKeys(have, problem, func() bool { return true }); len(have) != 1 || len(have[0]) != 32 {
		t.Errorf("the whole key is not in force: %s", &log)
	}
	if err := m.member.gossip.SetKeys(have[:0]); err == nil {
		t.Error("no key at all was set")
	}
}
