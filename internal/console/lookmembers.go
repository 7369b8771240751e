package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/history"
)

// seen is what a member tells of itself and of the others.
type seen struct {
	Member string            `json:"member"`
	Sees   map[string]string `json:"sees"`
	Keys   int               `json:"keys"`
	Copies int               `json:"copies"`
	Owned  int               `json:"owned"`
	Heirs  int               `json:"heirs"`
	// PerSecond are checks of its own clients; Used is how much of its table is used, as a part of 100.
	PerSecond uint64  `json:"checks_per_second"`
	Used      float64 `json:"table_used_percent"`
	LagMs     float64 `json:"lag_ms"`
	Unsettled int     `json:"unsettled"`
	Minority  bool    `json:"minority,omitempty"`
	Version   string  `json:"version,omitempty"`
	// Sends is what it sends to each other member.
	Sends map[string]traffic `json:"sends"`
}

// traffic is what a member sends to another one, without headers of connections and TLS.
type traffic struct {
	Frames float64 `json:"frames_per_second"`
	Bytes  float64 `json:"bytes_per_second"`
}

// sends is what this node sends to the other members.
type sends struct {
	mu   sync.Mutex
	at   time.Time
	had  map[string]weir.Member // by their names
	rate map[string]traffic
}

// look takes what was sent since the last look.
func (s *sends) look(members []weir.Member, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had, span := s.had, now.Sub(s.at).Seconds()
	s.at, s.had, s.rate = now, make(map[string]weir.Member, len(members)), make(map[string]traffic, len(members))
	for i := range members {
		m := &members[i]
		if m.Self {
			continue
		}
		s.had[m.Name] = *m
		if was, ok := had[m.Name]; ok && was.Instance == m.Instance && span > 0 {
			s.rate[m.Name] = traffic{float64(less(m.SentFrames, was.SentFrames)) / span,
				float64(less(m.SentBytes, was.SentBytes)) / span}
		}
	}
}

// rates returns it. The map must not be changed.
func (s *sends) rates() map[string]traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rate
}

// sees returns what this node tells of itself.
func (c *Console) sees() seen {
	node := c.config.Node()
	t := node.Stats()
	s := seen{Member: c.name(), Sees: map[string]string{}, Sends: c.sends.rates(), Keys: t.Keys - t.Copies,
		Copies: t.Copies}
	if t.MaxBytes > 0 {
		s.Used = 100 * float64(t.Bytes-t.CopyBytes) / float64(t.MaxBytes)
	}
	members := c.outlook.members()
	for i := range members {
		m := &members[i]
		s.Sees[m.Name] = stateOf(m)
		if m.Self {
			s.PerSecond, s.Version = m.ChecksPerSecond, m.Version
			s.LagMs = float64(m.Lag.Microseconds()) / 1000
		}
	}
	if st, ok := c.outlook.stats(); ok {
		s.Owned, s.Heirs, s.Unsettled, s.Minority = st.Owned, st.Heirs, st.Unsettled, st.Minority
	}
	return s
}

// outlook is what this node sees of its cluster, at most a second old: it looks at all its partitions for that, so it
// does once for all who ask.
type outlook struct {
	node func() *weir.Node
	made snapshots
}

// members returns the members. The list must not be changed.
func (o *outlook) members() []weir.Member {
	out, _ := shared(context.Background(), &o.made, "members", func(context.Context) ([]weir.Member, error) {
		return o.node().Cluster().Members(), nil
	})
	return out
}

// stats returns what this node holds as a member; false: it is in no cluster.
func (o *outlook) stats() (weir.ClusterStats, bool) {
	out, err := shared(context.Background(), &o.made, "stats", func(context.Context) (weir.ClusterStats, error) {
		if s, ok := o.node().Cluster().Stats(); ok {
			return s, nil
		}
		return weir.ClusterStats{}, errAlone
	})
	return out, err == nil
}

var errAlone = errors.New("the node is in no cluster")

// stateOf returns the state of a member as this node sees it.
func stateOf(m *weir.Member) string {
	if m.Unreachable {
		return "unreachable"
	}
	return m.State
}

type membersLook struct {
	Names   []string    `json:"-"`
	List    []memberRow `json:"list"`
	Missing []Missing   `json:"missing"`
}

type memberRow struct {
	Name  string  `json:"name"`
	State string  `json:"state"`
	Share float64 `json:"share"`
	Rules string  `json:"rules"`
	Addr  string  `json:"address"`
	Seen  *seen   `json:"says,omitempty"`
	Self  bool    `json:"self,omitempty"`
	names []string
}

// Percent is the share as a number of hundredths.
func (m *memberRow) Percent() float64 { return 100 * m.Share }

// View returns what the member sees of each, in the order of the names.
func (m *memberRow) View() []string {
	out := make([]string, len(m.names))
	for i, n := range m.names {
		if m.Seen == nil {
			out[i] = "?"
		} else {
			out[i] = cmp.Or(m.Seen.Sees[n], "-")
		}
	}
	return out
}

// Sends is what the member sends to each, in the order of the names; empty: nothing that is known.
func (m *memberRow) Sends() []string {
	out := make([]string, len(m.names))
	for i, n := range m.names {
		if m.Seen == nil {
			out[i] = "?"
		} else if t, ok := m.Seen.Sends[n]; ok && n != m.Name {
			out[i] = bytesOf(t.Bytes) + "/s"
		}
	}
	return out
}

// bytesOf writes a number of bytes in few digits.
func bytesOf(n float64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if n < 999.5 {
			return strconv.FormatFloat(n, 'f', 0, 64) + " " + unit
		}
		n /= 1000
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " GB"
}

// Ring draws them.
func (m *membersLook) Ring() any {
	var parts []slice
	for i := range m.List {
		parts = append(parts, slice{m.List[i].Name, stateClass(m.List[i].State), m.List[i].Share})
	}
	return ringSVG(parts)
}

// stateClass returns one of few classes for a state.
func stateClass(state string) string {
	switch state {
	case "active":
		return "good"
	case "joining", "leaving", "-", "?":
		return "soon"
	case "expelled":
		return "past"
	}
	return "bad"
}

func (c *Console) lookMembers(ctx context.Context) (*membersLook, error) {
	says, err := shared(ctx, &c.snapshots, "members", func(ctx context.Context) (*saysAll, error) {
		all := &saysAll{of: map[string]*seen{}}
		own := new(c.sees())
		all.of[own.Member] = own
		var err error
		all.missing, err = gather(ctx, c, question{Kind: "members"}, func(member string, s *seen) error {
			s.Member = member
			all.of[member] = s
			return nil
		})
		return all, err
	})
	if err != nil {
		return nil, err
	}
	out := &membersLook{Missing: says.missing, List: []memberRow{}}
	members := c.outlook.members()
	if len(members) == 0 {
		members = []weir.Member{{Name: c.name(), State: "active", Share: 1, Self: true,
			RulesHash: c.config.Node().RulesHash()}}
	}
	for i := range members {
		m := &members[i]
		out.Names = append(out.Names, m.Name)
		out.List = append(out.List, memberRow{Name: m.Name, State: stateOf(m), Share: m.Share, Addr: m.Address, Self: m.Self,
			Rules: fmt.Sprintf("%08x", m.RulesHash>>32), Seen: says.of[m.Name]})
	}
	for i := range out.List {
		out.List[i].names = out.Names
	}
	return out, nil
}

type saysAll struct {
	of      map[string]*seen
	missing []Missing
}

// percent writes a part of 100 with few digits.
func percent(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.1:
		return "< 0.1"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Spans are the times that can be shown.
func (n *nowLook) Spans() []string {
	var out []string
	for _, s := range history.Spans() {
		out = append(out, s.Name)
	}
	return out
}

// Wrong reports whether something is wrong now.
func (n *nowLook) Wrong(f frame) bool {
	return slices.ContainsFunc(f.Problems, func(p problem) bool { return !p.Soon })
}

// P99 is the wait, in few digits.
func (n *nowLook) P99() string { return strconv.FormatFloat(n.P99Ms, 'f', -1, 64) }
