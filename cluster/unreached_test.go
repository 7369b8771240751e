package cluster_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
)

// A member that joins another machine, and that no other machine reaches, does not open.
func TestMemberThatNobodyReaches(t *testing.T) {
	for name, c := range map[string]struct {
		config cluster.Config
		want   string // empty: it opens
	}{
		"as in a hurry": {cluster.Config{Join: []string{"10.1.2.3:7946"}},
			"Cluster.PeerAddr is 127.0.0.1:0, which no other machine reaches, and Cluster.Join has 10.1.2.3:7946"},
		"says what a node's flags are": {cluster.Config{Join: []string{"10.1.2.3:7946"}},
			"(a node's --peer-addr and --gossip-addr)"},
		"a name of another": {cluster.Config{Join: []string{"node-2.invalid:7946"}}, "Cluster.PeerAddr"},
		"a name of all": {cluster.Config{Join: []string{"dns+weir.invalid:7946"}, Expect: 3},
			"dns+weir.invalid:7946"},
		"loopback and another": {cluster.Config{Join: []string{"127.0.0.1:9", "10.1.2.3:7946"}}, "10.1.2.3:7946"},
		"what it advertises": {cluster.Config{Advertise: "localhost", PeerAddr: ":0", GossipAddr: ":0", Insecure: true,
			Join: []string{"10.1.2.3:7946"}}, "Cluster.Advertise is localhost"},
		"gossip at loopback": {cluster.Config{PeerAddr: ":0", Insecure: true, Join: []string{"10.1.2.3:7946"}},
			"Cluster.GossipAddr is 127.0.0.1:0"},
		"loopback":                 {cluster.Config{Join: []string{"127.0.0.1:9", "[::1]:9", "localhost:9"}}, ""},
		"nobody, and another port": {cluster.Config{}, ""},
	} {
		if c.config.PeerAddr == "" {
			c.config.PeerAddr = "127.0.0.1:0"
		}
		if c.config.GossipAddr == "" {
			c.config.GossipAddr = "127.0.0.1:0"
		}
		c.config.Name = "node-1"
		n, err := weir.Open(t.Context(), weir.Config{Cluster: &c.config, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			n.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, weir.ErrInvalid) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without a logger the warnings, also those of a member, go to that of the program, and nothing else.
func TestWarningsWithoutALogger(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(before)
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte("rules: [{name: a, limits: [5/second]}]"),
		Cluster: &cluster.Config{Name: "node-1", PeerAddr: ":0", GossipAddr: "127.0.0.1:0", Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
	// A member that tells the others of new rules would also say that it is active.
	if err := n.SetRules([]byte("rules: [{name: a, key: [user], limits: [5/second]}]")); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if text := out.String(); !strings.Contains(text, "probable mistake") ||
		!strings.Contains(text, "others on the network can take part") || strings.Contains(text, "INFO") {
		t.Errorf("logged: %s", text)
	}
}
