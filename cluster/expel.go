package cluster

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cluster/gossip"
)

// stateExpelled is the state of members that operators have thrown out, for people.
const stateExpelled = "expelled"

func (m *member) expelled() (names []string) {
	for _, e := range m.core.Registry().Expulsions() {
		if !e.Back {
			names = append(names, e.Name)
		}
	}
	return names
}

// Forget implements [weir.Cluster].
func (m *member) Forget(name string) error {
	if m.Closed.Load() {
		return weir.ErrClosed
	}
	err := m.gossip.Forget(name)
	known := m.membership.Forget(name)
	switch {
	case err == nil || errors.Is(err, gossip.ErrUnknown) && known:
		return nil
	case errors.Is(err, gossip.ErrAlive):
		return fmt.Errorf("%w: member %q is alive: end it with SIGTERM, and it leaves", weir.ErrInvalid, name)
	case errors.Is(err, gossip.ErrUnknown):
		return fmt.Errorf("%w: %q", weir.ErrUnknownMember, name)
	}
	return err
}

// Expel implements [weir.Cluster].
func (m *member) Expel(name string) error { return m.expel(name, false) }

// Readmit implements [weir.Cluster].
func (m *member) Readmit(name string) error {
	if !m.core.Registry().Expelled(name) {
		return fmt.Errorf("%w: %q is not expelled", weir.ErrUnknownMember, name)
	}
	return m.expel(name, true)
}

func (m *member) expel(name string, back bool) error {
	if m.Closed.Load() {
		return weir.ErrClosed
	}
	if name == m.config.Name {
		return fmt.Errorf("%w: a member does not expel itself: end it, or ask another one", weir.ErrInvalid)
	}
	if err := m.core.Expel(name, back); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}
