package serve

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/metrics"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// directory serves the members of the node's cluster over HTTP.
type directory struct{ node *weir.Node }

func (d directory) Members() []transport.Member {
	infos := d.node.Cluster().Members()
	out := make([]transport.Member, len(infos))
	for i := range infos {
		m := &infos[i]
		out[i] = transport.Member{
			Name: m.Name, Address: m.Address, Instance: m.Instance, State: m.State, Share: m.Share,
			RulesHash: fmt.Sprintf("%016x", m.RulesHash), GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr, AdminAddr: m.AdminAddr,
			Version: m.Version, ZoneData: m.ZoneData,
			Unreachable: m.Unreachable,
		}
		if m.Self {
			out[i].Self = &transport.MemberSelf{
				Keys: m.Keys, Checks: m.Checks, ChecksPerSecond: m.ChecksPerSecond,
				LagMs: transport.Millis(m.Lag), Unacknowledged: m.Unacknowledged,
				Warnings: d.node.Warnings(),
			}
		}
	}
	return out
}

func (d directory) Forget(name string) error {
	err := d.node.Cluster().Forget(name)
	if errors.Is(err, weir.ErrUnknownMember) {
		return fmt.Errorf("%w: there is no dead member %q, and only a dead member can be forgotten: list the members with "+
			"weir members", limiter.ErrInvalid, name)
	}
	return err
}

func (d directory) Expel(name string) error { return d.node.Cluster().Expel(name) }

func (d directory) Readmit(name string) error {
	err := d.node.Cluster().Readmit(name)
	if errors.Is(err, weir.ErrUnknownMember) {
		return fmt.Errorf("%w: the member %q is not expelled: list the members with weir members", limiter.ErrInvalid, name)
	}
	return err
}

// ring publishes which member to ask for which counter.
type ring struct {
	node *weir.Node
	last atomic.Pointer[ringAnswer]
}

// ringAnswer is a placement and its message.
type ringAnswer struct {
	of  *weir.Placement
	out *weirv1.RingResponse
}

// View implements [transport.Ring].
func (r *ring) View() uint64 {
	if p := r.node.Cluster().Placement(); p != nil {
		return p.View
	}
	return 0
}

// Placement implements [transport.Ring].
func (r *ring) Placement() *weirv1.RingResponse {
	p := r.node.Cluster().Placement()
	if p == nil {
		return nil
	}
	if have := r.last.Load(); have != nil && have.of == p {
		return have.out
	}
	out := &weirv1.RingResponse{View: p.View, Rules: p.Rules, Seeds: p.Seeds, Owners: make([]uint32, len(p.Owners))}
	for i, o := range p.Owners {
		out.Owners[i] = uint32(o)
	}
	for _, m := range p.Members {
		out.Members = append(out.Members, &weirv1.RingMember{Name: m.Name, GrpcAddr: m.GRPCAddr})
	}
	r.last.Store(&ringAnswer{p, out})
	return out
}

// top returns the keys that the node checked most and denied most, of a tenant or, if that is empty, of all.
func (s *Service) top(tenant string, n int) (hottest, denied []transport.TopKey) {
	of := s.Node().Top
	if tenant != "" {
		of = func(n int) ([]weir.TopKey, []weir.TopKey) { return weir.Administered(s.Node()).TopOf(tenant, n) }
	}
	hot, no := of(n)
	list := func(keys []weir.TopKey) []transport.TopKey {
		out := make([]transport.TopKey, len(keys))
		for i, k := range keys {
			out[i] = transport.TopKey{Key: k.Name, Count: k.Count, Error: k.Error}
			if l := k.Lent; l.Holders > 0 {
				out[i].Lent = transport.Lent{Holders: l.Holders, Units: l.Units, Rate: l.Rate, Until: l.Until.Time()}
			}
		}
		return out
	}
	return list(hot), list(no)
}

// cluster returns the state of the node in its cluster, for metrics.
func (s *Service) cluster() metrics.ClusterStats {
	node := s.node.Load()
	if node == nil {
		return metrics.ClusterStats{}
	}
	c, _ := node.Cluster().Stats()
	var store *metrics.StoreStats
	if k := c.Store; k != nil {
		store = new(metrics.StoreStats(*k))
	}
	return metrics.ClusterStats{
		Store: store, Members: c.Members,
		Unreachable: c.Unreachable, Share: c.Share, Owned: c.Owned, Heirs: c.Heirs, Copies: c.Copies,
		Sealed:    c.Sealed,
		Unsettled: c.Unsettled, Withheld: c.Withheld, Parked: c.Parked,
		Waiting: c.Waiting, Queued: c.Queued, Fallback: c.Fallback, LagSeconds: c.Lag.Seconds(),
		Unacknowledged: c.Unacknowledged, Events: c.Events, RulesDiffer: c.RulesDiffer, ZoneDataDiffers: c.ZoneDataDiffers,
		ClockDifference: c.ClockDifference.Seconds(), Minority: c.Minority,
	}
}

// validities returns how long certificates are valid, those for members included; nil if the
// service can have none.
func (s *Service) validities(c *Config) func() map[string]metrics.Validity {
	if c.Validities == nil && c.Node.Cluster == nil {
		return nil
	}
	return func() map[string]metrics.Validity {
		out := map[string]metrics.Validity{}
		if c.Validities != nil {
			maps.Copy(out, c.Validities())
		}
		if node := s.node.Load(); node != nil {
			stats, _ := node.Cluster().Stats()
			for plane, v := range map[string]metrics.Validity{
				"peer":           {Begins: stats.CertificateBegins, Expires: stats.CertificateExpires},
				"peer_authority": {Begins: stats.AuthorityBegins, Expires: stats.AuthorityExpires},
			} {
				if !v.Expires.IsZero() {
					out[plane] = v
				}
			}
		}
		return out
	}
}

func (s *Service) table() metrics.TableStats {
	node := s.node.Load()
	if node == nil {
		return metrics.TableStats{MaxKeys: s.maxKeys}
	}
	t := node.Stats()
	out := metrics.TableStats{
		Keys: t.Keys - t.Copies, Copies: t.Copies, MaxKeys: s.maxKeys, Bytes: t.Bytes - t.CopyBytes, CopyBytes: t.CopyBytes,
		MaxBytes:   t.MaxBytes,
		Overflowed: t.Overflowed, IDs: t.IDs, IDsForgotten: t.IDsForgotten, Holds: t.Holds, HoldsExpired: t.HoldsExpired,
		Overdrawn: t.Overdrawn,
	}
	out.OverflowedBy.Tenant, out.OverflowedBy.Share, out.OverflowedBy.Key = t.OverflowedBy[table.BoundTenant],
		t.OverflowedBy[table.BoundShare], t.OverflowedBy[table.BoundKey]+t.OverflowedBy[table.BoundHolds]
	for _, r := range node.Shares() {
		out.Shares = append(out.Shares, metrics.RuleShare(r))
	}
	return out
}
