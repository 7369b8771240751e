package peerlink

import (
	"math/rand/v2"
	"reflect"
	"strings"

	"github.com/weirlimit/weir/internal/peer"
)

// randomFrame returns a frame with a random value in every field of package peer's
// structs, whose parts fit together. It finds the fields by reflection, so that a field
// that the codec forgets is noticed.
func randomFrame(r *rand.Rand, most int) *peer.Frame {
	f := new(peer.Frame)
	fill(r, reflect.ValueOf(f).Elem(), most)
	for i := range f.Limits {
		fitLimit(&f.Limits[i])
	}
	for i := range f.Rules {
		for j := range f.Rules[i].Limits {
			fitLimit(&f.Rules[i].Limits[j])
		}
	}
	fitKeys(r, f)
	fitEntries(r, f)
	fitReplies(r, f)
	f.Traces = f.Traces[:min(len(f.Traces), len(f.Checks))]
	f.Holds = f.Holds[:min(len(f.Holds), len(f.Checks)+len(f.Refunds))]
	f.Amended = f.Amended[:min(len(f.Amended), len(f.Replies))]
	fitUnits(f)
	return f
}

// fitUnits bounds the units of a frame as the codec does.
func fitUnits(f *peer.Frame) {
	for i := range f.Keys {
		f.Keys[i].Cost &= maxUnits
	}
	for i := range f.Results {
		f.Results[i].Remaining &= maxUnits
		f.Results[i].InForce &= maxUnits
	}
	for i := range f.Amended {
		a := &f.Amended[i]
		a.First, a.Estimate, a.Was = a.First&maxUnits, a.Estimate&maxUnits, a.Was&maxUnits
	}
	for i := range f.Explained {
		for j := range f.Explained[i].Limits {
			counts := f.Explained[i].Limits[j].Counts
			for k := range counts {
				counts[k].Count &= maxUnits
			}
		}
	}
}

func fitLimit(l *peer.Limit) {
	if !l.HasWeight {
		l.Weight = 0
	}
}

func fitKeys(r *rand.Rand, f *peer.Frame) {
	f.Keys = nil
	if len(f.Rules) == 0 {
		f.Rules = []peer.Rule{{ID: 1}}
	}
	for i := range f.Checks {
		f.Checks[i].Keys = uint8(r.IntN(4))
		addKeys(r, f, f.Checks[i].Keys)
	}
	for i := range f.Refunds {
		f.Refunds[i].Keys = uint8(r.IntN(4))
		addKeys(r, f, f.Refunds[i].Keys)
	}
}

func addKeys(r *rand.Rand, f *peer.Frame, n uint8) {
	for range n {
		var k peer.Key
		fill(r, reflect.ValueOf(&k).Elem(), 0)
		k.Rule = uint16(r.IntN(len(f.Rules)))
		f.Keys = append(f.Keys, k)
	}
}

func fitEntries(r *rand.Rand, f *peer.Frame) {
	f.Entries, f.IDs = nil, nil
	if len(f.Limits) == 0 {
		f.Limits = []peer.Limit{{Name: "minute"}}
	}
	for i := range f.Batches {
		b := &f.Batches[i]
		b.Keys = uint32(r.IntN(4))
		for range b.Keys {
			for j := range 1 + r.IntN(3) {
				var e peer.Entry
				fill(r, reflect.ValueOf(&e).Elem(), 5)
				e.First, e.Limit = j == 0, uint16(r.IntN(len(f.Limits)))
				f.Entries = append(f.Entries, e)
			}
		}
		b.IDs = uint32(r.IntN(4))
		for range b.IDs {
			var x peer.ID
			fill(r, reflect.ValueOf(&x).Elem(), 5)
			f.IDs = append(f.IDs, x)
		}
	}
}

func fitReplies(r *rand.Rand, f *peer.Frame) {
	f.Results = nil
	for i := range f.Replies {
		p := &f.Replies[i]
		if p.Results = uint16(r.IntN(4)); r.IntN(20) == 0 {
			p.Results += 255 // more than a byte holds
		}
		n := int(p.Results)
		if p.Idle {
			n *= 2
		}
		for range n {
			var x peer.Result
			fill(r, reflect.ValueOf(&x).Elem(), 0)
			f.Results = append(f.Results, x)
		}
		for j := range p.Rules {
			p.Rules[j] = uint16(r.IntN(len(f.Rules)))
		}
	}
}

// fill sets a value at random; slices get at most most elements.
func fill(r *rand.Rand, v reflect.Value, most int) {
	// Numbers of all lengths, often 0.
	number := r.Uint64() >> r.IntN(64)
	if r.IntN(4) == 0 {
		number = 0
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(number&1 != 0)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(number & (1<<v.Type().Bits() - 1))
	case reflect.Int32, reflect.Int64:
		n := int64(number)
		if r.IntN(2) == 0 {
			n = -n
		}
		if v.Kind() == reflect.Int32 {
			n = int64(int32(n))
		}
		v.SetInt(n)
	case reflect.String:
		v.SetString(strings.Repeat("ü-rule ", r.IntN(4)))
	case reflect.Slice:
		if most > 0 && r.IntN(3) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), r.IntN(most+1), most+1))
		}
		for i := range v.Len() {
			fill(r, v.Index(i), min(most, 3))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), most)
		}
	default:
		panic("a field of a kind that the wire does not know: " + v.Type().String())
	}
}
