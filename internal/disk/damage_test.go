package disk_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/disk"
	"github.com/weirlimit/weir/internal/disk/disktest"
	"github.com/weirlimit/weir/internal/peer"
)

const firstSegment = "0000000000000001.seg"

// A damaged record costs the keys that it is about, up to the next record that replaces all of them, and no others.
func TestADamageCostsOneRecord(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	const keys = 100
	var begins []int64
	for k := range uint32(keys) {
		all, _ := s.Bytes()
		begins = append(begins, all)
		if err := write(s, k, 0, 1, true, 50); err != nil {
			t.Fatal(err)
		}
	}
	for k := range uint32(keys) {
		if err := write(s, k, 1, 2, k == 30, 50); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Sync(true), s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		key uint32
		at  int64 // within its record
	}{{20, 0}, {20, 5}, {20, 9}, {20, 40}, {30, 40}} {
		d := m.Copy()
		b := d.Bytes(firstSegment)
		for i := range int64(8) {
			b[begins[of.key]+of.at+i] ^= 0xff
		}
		have, damages := reopen(t, d)
		if len(damages) != 1 || damages[0].Offset != begins[of.key] || errors.Is(damages[0], peer.ErrTorn) {
			t.Errorf("byte %d of the record at %d: %v", of.at, begins[of.key], damages)
		}
		for k := range uint32(keys) {
			want := uint64(2)
			if k == of.key && k != 30 {
				want = 0
			}
			if have[k] != want {
				t.Errorf("key %d is damaged: key %d has %d, want %d", of.key, k, have[k], want)
			}
		}
	}
}

// A bit of a header that has turned is a damage, and not another version or another one's directory.
func TestADamagedHeaderIsNotRefused(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	if err := errors.Join(s.Sync(true), write(s, 1, 0, 1, true, 50)); err != nil {
		t.Fatal(err)
	}
	all, _ := s.Bytes()
	header := all - s.Needed(1)
	if err := errors.Join(s.Sync(true), s.Close()); err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * header {
		d := m.Copy()
		d.Bytes(firstSegment)[bit/8] ^= 1 << (bit % 8)
		if have, damages := reopen(t, d); have[1] != 1 || len(damages) != 1 {
			t.Errorf("bit %d of byte %d: %v, %v", bit%8, bit/8, have, damages)
		}
	}
}

// What the file system does not give costs the records that have it, and no others, and is not taken for the end of
// what was being written.
func TestASectorThatCannotBeReadCostsItsRecords(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	const keys, size = 300, 10_000
	for k := range uint32(keys) {
		if err := write(s, k, 0, 1, true, size); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Sync(true), s.Close()); err != nil {
		t.Fatal(err)
	}
	last := segments(t, m)
	end := int64(len(m.Bytes(last[len(last)-1])))
	for _, bad := range [][2]int64{{0, 512}, {50_000, 50_512}, {51_200, 55_296}, {400_000, 404_096}, {end - 20, end}} {
		d := m.Copy()
		d.Bad = bad
		have, damages := reopen(t, d)
		segments := len(segments(t, d))
		if len(notTorn(damages)) != segments || len(damages) != segments {
			t.Errorf("bytes %v of %d segments cannot be read: %v", bad, segments, damages)
		}
		if len(have) >= keys || len(have) < keys-3*segments {
			t.Errorf("bytes %v of %d segments cannot be read: %d of %d keys are there", bad, segments, len(have), keys)
		}
	}
}

// A record that is refused costs the keys that could not be taken.
func TestARefusedRecordCostsItsKeys(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	both := []peer.RecordKey{{Key: 1, Replaces: true, Weight: 1}, {Key: 2, Replaces: true, Weight: 1}}
	later := []peer.RecordKey{{Key: 1, Weight: 1}, {Key: 2, Weight: 1}, {Key: 3, Replaces: true, Weight: 1}}
	err := errors.Join(s.Append(&peer.Record{Keys: both}), s.Append(&peer.Record{Keys: later}), s.Sync(true), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct{ refused, want []uint32 }{{[]uint32{1}, []uint32{2, 3}}, {nil, []uint32{3}}} {
		again := open(t, m)
		var second []uint32
		first := true
		damages := again.Read(func(r *peer.Record) error {
			if first {
				first, r.Refused = false, of.refused
				return errors.New("refused")
			}
			for _, k := range r.Keys {
				second = append(second, k.Key)
			}
			return nil
		})
		if !slices.Equal(second, of.want) || len(damages) != 1 {
			t.Errorf("refused %v: the next record has %v, %v", of.refused, second, damages)
		}
		again.Close()
	}
}

// What a power cut leaves of the segment that was being written is told as that, and not at all once others follow: an
// empty file, a part of a header, and records of zeros, in place of the last one or behind it.
func TestATornEndIsNoDamage(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	if err := errors.Join(write(s, 1, 0, 1, true, 50), write(s, 2, 0, 1, true, 50), s.Sync(true)); err != nil {
		t.Fatal(err)
	}
	whole, _ := s.Bytes()
	keep(t, s, 1, 1, 2, false, 50)
	for name, of := range map[string]struct {
		file string
		end  func(b []byte) []byte
		want uint64
	}{
		"an empty segment":      {"0000000000000002.seg", func([]byte) []byte { return nil }, 2},
		"a segment of zeros":    {"0000000000000002.seg", func([]byte) []byte { return make([]byte, 4096) }, 2},
		"a part of a header":    {"0000000000000002.seg", func([]byte) []byte { return []byte("weirdi") }, 2},
		"zeros behind the last": {firstSegment, func(b []byte) []byte { return append(b, make([]byte, 4096)...) }, 2},
		"zeros in its place": {firstSegment, func(b []byte) []byte {
			clear(b[whole:])
			return b
		}, 1},
		"zeros in its end": {firstSegment, func(b []byte) []byte {
			clear(b[len(b)-58:])
			return b
		}, 1},
		"it is cut short": {firstSegment, func(b []byte) []byte { return b[:len(b)-20] }, 1},
	} {
		d := m.Copy()
		d.Put(of.file, of.end(slices.Clone(d.Bytes(of.file))))
		for restart := range 3 {
			again := open(t, d)
			have, damages := read(again)
			if torn := restart == 0; len(notTorn(slices.Clone(damages))) > 0 || torn != (len(damages) == 1) {
				t.Errorf("%s, restart %d: %v", name, restart, damages)
			}
			if have[1] != of.want || have[2] != 1 {
				t.Errorf("%s, restart %d: %v", name, restart, have)
			}
			// Segments follow, and nothing is deleted.
			if err := errors.Join(write(again, 9, 0, 1, true, 50), again.Sync(false), again.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A segment that is shorter than the next one says is a damage, also where a record ends.
func TestAShortSegmentIsTold(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	if err := errors.Join(write(s, 1, 0, 1, true, 50), s.Sync(true)); err != nil {
		t.Fatal(err)
	}
	whole, _ := s.Bytes()
	if err := errors.Join(write(s, 1, 1, 2, false, 2<<20), write(s, 2, 0, 1, true, 50), s.Sync(true)); err != nil {
		t.Fatal(err)
	}
	m.Put(firstSegment, m.Bytes(firstSegment)[:whole])
	m.Crash(1)
	have, damages := reopen(t, m)
	if len(damages) != 1 || !strings.Contains(damages[0].Error(), "cut short") || damages[0].Offset != whole ||
		have[1] != 1 || have[2] != 1 {
		t.Errorf("%v, %v", damages, have)
	}
}

// What was deleted or set aside does not come back after a power cut.
func TestNamesLast(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	if err := errors.Join(write(s, 1, 0, 1, true, 2<<20), s.Sync(true), write(s, 1, 0, 2, true, 50), s.Sync(true),
		s.Close()); err != nil {
		t.Fatal(err)
	}
	if n := segments(t, m); len(n) != 1 {
		t.Fatalf("segments %v", n)
	}
	m.Crash(0)
	if n := segments(t, m); len(n) != 1 {
		t.Errorf("after a power cut %v are there", n)
	}
	id := own
	id.Cluster = "other"
	o, err := disk.Open(disk.Config{Files: m, Identity: id, Discard: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(o, 1, 0, 1, true, 50), o.Sync(true)); err != nil {
		t.Fatal(err)
	}
	m.Crash(0)
	again, err := disk.Open(disk.Config{Files: m, Identity: id})
	if err != nil {
		t.Fatalf("what was set aside is back: %v", err)
	}
	if have, damages := read(again); len(have) != 1 || len(damages) > 0 {
		t.Errorf("%v, %v", have, damages)
	}
}

// Marks without end do not make reading slow: what is checksummed in vain is bounded.
func TestMarksWithoutEnd(t *testing.T) {
	b := make([]byte, 4<<20)
	for i := 0; i+12 <= len(b); i += 12 {
		copy(b[i:], "\xb5Wr\x1e\x00\x00\x10\x00")
	}
	d := new(disktest.Memory)
	d.Put(firstSegment, b)
	if have, damages := reopen(t, d); len(have) > 0 || len(damages) != 1 {
		t.Errorf("%v, %v", have, damages)
	}
}
