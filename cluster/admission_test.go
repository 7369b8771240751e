package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/gossip"
)

// A node with another secret, or an invalid name, is not opened, and the error says what
// to do.
func TestWhoCannotBeAMember(t *testing.T) {
	there := memberConfig("node-1", hundred)
	there.Secret = []byte("one")
	first := open(t, there)
	for _, c := range []struct {
		what string
		set  func(*weir.Config)
		want error
		says string
	}{
		{"another secret", func(c *weir.Config) {
			c.Secret = []byte("two")
		}, gossip.ErrOtherSecret, "give all members the same"},
		{"no secret", func(c *weir.Config) { c.Secret = nil }, gossip.ErrOtherSecret, "give all members the same"},
		{"a name of two lines", func(c *weir.Config) {
			part(*c).Name = "a\nb"
		}, weir.ErrInvalid, `invalid: the name "a\nb" has a character that cannot be seen`},
		{"a name and a space", func(c *weir.Config) { part(*c).Name = "a " }, weir.ErrInvalid, "leave it out (Cluster.Name)"},
	} {
		config := memberConfig("node-2", hundred, gossipAddr(first))
		config.Secret = there.Secret
		c.set(&config)
		n, err := weir.Open(context.Background(), config)
		if err == nil {
			_ = n.Close()
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if err := first.Cluster().Forget("node-2"); !errors.Is(err, weir.ErrUnknownMember) {
		t.Errorf("who was kept out can be forgotten: %v", err)
	}
}
