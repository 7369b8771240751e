package sim

import (
	"reflect"
	"strings"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// source is the fuzzer's bytes, which end in zeros.
type source struct{ b []byte }

func (s *source) below(n int) int {
	if n > 256 {
		return (s.below(256)<<8 | s.below(256)) % n
	}
	if len(s.b) == 0 {
		return 0
	}
	v := int(s.b[0])
	s.b = s.b[1:]
	return v % n
}

func (s *source) bytes(n int) []byte {
	n = min(n, len(s.b))
	out := s.b[:n]
	s.b = s.b[n:]
	return out
}

// frame returns the bytes of a frame whose numbers are such that they matter: those of
// what is there, those beside, and the ends.
func (h *hostile) frame(n *Node) []byte {
	f := new(peer.Frame)
	info, _ := n.core.Partition(h.parts[h.src.below(len(h.parts))])
	forge := forger{h, n, info.ID, info.Epoch, info.Seq, info.Owner}
	forge.fill(reflect.ValueOf(f).Elem(), "")
	f.To = n.inst
	if h.src.below(8) == 0 {
		f.To = forge.instance()
	}
	f.Relayed = h.src.below(8) == 0
	f.Known = nil // whom to count is the business of gossip too
	f.Explained = nil
	fit(f)
	b, err := h.codec.Append(nil, f)
	if err != nil {
		return nil
	}
	return b
}

// forger fills in the fields of a frame by their names.
type forger struct {
	*hostile
	to    *Node
	part  int
	epoch peer.Epoch
	seq   uint64
	owner peer.Epoch
}

func (x *forger) instance() peer.Instance {
	switch x.src.below(8) {
	case 0:
		return 0
	case 1:
		return mallory
	case 2:
		return peer.Instance(0xbad0 + x.src.below(256))
	case 3:
		return x.owner.Instance
	}
	live := x.live()
	return live[x.src.below(len(live))].inst
}

// near returns a number that is like another, or at an end.
func (x *forger) near(v uint64) uint64 {
	switch x.src.below(10) {
	case 0:
		return 0
	case 1:
		return ^uint64(0)
	case 2:
		return 1 << 63
	case 3:
		return uint64(x.now) // what a clock would say
	case 4:
		return v + 1<<uint(x.src.below(64))
	}
	return v + uint64(x.src.below(4)) - 1
}

func (x *forger) fill(v reflect.Value, name string) {
	switch v.Interface().(type) {
	case peer.Instance:
		v.SetUint(uint64(x.instance()))
		return
	case peer.Epoch:
		e := peer.Epoch{Counter: x.near(max(x.epoch.Counter, x.owner.Counter)), Instance: x.instance()}
		if x.src.below(3) == 0 {
			e = x.epoch
		}
		v.Set(reflect.ValueOf(e))
		return
	case []peer.Trace:
		return // who traces nothing ignores them
	case peer.Key:
		k := x.keys[x.src.below(len(x.keys))]
		out := peer.Key{Hi: k.hash.Hi, Lo: k.hash.Lo, Closed: k.rule.Class() == limiter.Closed, Cost: 1}
		if x.src.below(4) == 0 {
			out.Hi, out.Cost = x.near(out.Hi), x.near(1)
		}
		v.Set(reflect.ValueOf(out))
		return
	case peer.Rule:
		k := x.keys[x.src.below(len(x.keys))]
		out := peer.Rule{ID: k.rule.ID(), Name: k.rule.Name, Defined: x.src.below(4) == 0}
		if x.src.below(4) == 0 {
			out.ID, out.OnUnreachable, out.Replication = x.near(out.ID), uint8(x.src.below(5)), uint8(x.src.below(5))
			x.fill(reflect.ValueOf(&out.Limits).Elem(), "Limits")
		}
		v.Set(reflect.ValueOf(out))
		return
	case peer.Limit:
		out := peer.Limit{Algorithm: uint8(x.src.below(9)), Limit: 100, Window: 24 * 3600 * 1_000_000}
		if x.src.below(4) == 0 {
			out.Limit, out.Burst, out.Window = int64(x.near(100)), int64(x.near(0)), int64(x.near(1_000_000))
			out.SubWindows, out.Block = int32(x.near(0)), int64(x.near(0))
		}
		v.Set(reflect.ValueOf(out))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			x.fill(v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Slice:
		n := 0
		if x.src.below(3) == 0 {
			n = 1 + x.src.below(3)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			x.fill(v.Index(i), name)
		}
	case reflect.Bool:
		v.SetBool(x.src.below(2) == 0)
	case reflect.Int64, reflect.Int32:
		v.SetInt(int64(x.near(0)))
	case reflect.Uint64:
		x.number(v, name)
	case reflect.Uint8:
		v.SetUint(uint64(x.src.below(8)))
		if x.src.below(16) == 0 {
			v.SetUint(255)
		}
	case reflect.String:
		v.SetString(strings.Repeat("x", x.src.below(3)))
	default:
		x.small(v, name)
	}
}

func (x *forger) number(v reflect.Value, name string) {
	switch name {
	case "Seq", "Base", "Appointed":
		v.SetUint(x.near(x.seq))
	case "Counter", "Top", "Grant":
		v.SetUint(x.near(x.owner.Counter))
	case "Hi":
		v.SetUint(x.near(x.keys[x.src.below(len(x.keys))].hash.Hi))
	case "Lo":
		v.SetUint(x.near(x.keys[x.src.below(len(x.keys))].hash.Lo))
	case "ID": // that of a check which may be under way
		v.SetUint(uint64(1+x.src.below(4))<<32 | uint64(x.src.below(2))<<4 | uint64(x.src.below(16)))
	default:
		v.SetUint(x.near(0))
	}
}

func (x *forger) small(v reflect.Value, name string) {
	switch name {
	case "Partition":
		v.SetUint(uint64(x.part))
		if x.src.below(8) == 0 {
			v.SetUint(x.near(0) & 0xffff)
		}
	case "Round", "Appointment", "Ping":
		v.SetUint(uint64(x.src.below(8)))
		if x.src.below(8) == 0 {
			v.SetUint(x.near(0) & 0xffff_ffff)
		}
	case "Wait":
		v.SetUint(uint64(x.src.below(256)) << 16)
	default:
		v.SetUint(x.near(0) & (1<<v.Type().Bits() - 1))
	}
}

// fit makes the counts and indices of a frame such that the codec takes it.
func fit(f *peer.Frame) {
	f.Keys = f.Keys[:min(len(f.Keys), 4)]
	rest := len(f.Keys)
	some := func(n *uint8) {
		*n = uint8(min(rest, int(*n)))
		rest -= int(*n)
	}
	for i := range f.Checks {
		some(&f.Checks[i].Keys)
	}
	for i := range f.Refunds {
		some(&f.Refunds[i].Keys)
	}
	f.Keys = f.Keys[:len(f.Keys)-rest]
	if len(f.Rules) == 0 {
		f.Rules = make([]peer.Rule, 1)
	}
	for i := range f.Keys {
		f.Keys[i].Rule %= uint16(len(f.Rules))
	}
	fitEntries(f)
	f.Results = f.Results[:min(len(f.Results), 4)]
	left := len(f.Results)
	for i := range f.Replies {
		r := &f.Replies[i]
		sets := 1
		if r.Idle {
			sets = 2
		}
		r.Results = uint16(min(int(r.Results%4), left/sets))
		left -= sets * int(r.Results)
		for j := range r.Rules {
			r.Rules[j] %= uint16(len(f.Rules))
		}
	}
	f.Results = f.Results[:len(f.Results)-left]
}

func fitEntries(f *peer.Frame) {
	keys := 0
	for i := range f.Entries {
		e := &f.Entries[i]
		e.First = e.First || i == 0
		if e.First {
			keys++
		}
		if len(f.Limits) == 0 {
			e.Gone = true
		} else {
			e.Limit %= uint16(len(f.Limits))
		}
	}
	for i := range f.Batches {
		f.Batches[i].Keys = 0
	}
	if len(f.Batches) == 0 {
		f.Entries = nil
		return
	}
	f.Batches[0].Keys = uint32(keys)
}
