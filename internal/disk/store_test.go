package disk_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/disk"
	"github.com/weirlimit/weir/internal/disk/disktest"
	"github.com/weirlimit/weir/internal/peer"
)

var own = disk.Identity{Cluster: "weir", Member: "node-1", Secret: "print"}

func open(t testing.TB, m *disktest.Memory) *disk.Store {
	t.Helper()
	return openAs(t, disk.Config{Files: m, Identity: own})
}

func openAs(t testing.TB, c disk.Config) *disk.Store {
	t.Helper()
	s, err := disk.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// keep appends the state of a key, as write does, and closes the store.
func keep(t testing.TB, s *disk.Store, key uint32, from, to uint64, whole bool, size int) {
	t.Helper()
	if err := errors.Join(write(s, key, from, to, whole, size), s.Sync(true), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// model is what keys have: a number that only grows, written as a whole or as a step that names the one before.
type model map[uint32]uint64

// write appends the state of a key, as a whole or as the step to it.
func write(s *disk.Store, key uint32, from, to uint64, whole bool, size int) error {
	data := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, from), to)
	if whole {
		binary.LittleEndian.PutUint64(data, 0)
	}
	return s.Append(&peer.Record{At: int64(to), Data: append(data, make([]byte, size)...),
		Keys: []peer.RecordKey{{Key: key, Replaces: whole, Weight: uint32(16 + size)}}})
}

// read returns what a directory has. A step that does not follow the one before is an error.
func read(s *disk.Store) (model, []disk.DamageError) {
	have := model{}
	damages := s.Read(func(r *peer.Record) error {
		from, to := binary.LittleEndian.Uint64(r.Data), binary.LittleEndian.Uint64(r.Data[8:])
		for _, k := range r.Keys {
			if !k.Replaces && have[k.Key] != from {
				return fmt.Errorf("key %d has %d, and the record is from %d", k.Key, have[k.Key], from)
			}
			have[k.Key] = to
		}
		return nil
	})
	return have, damages
}

func reopen(t testing.TB, m *disktest.Memory) (model, []disk.DamageError) {
	t.Helper()
	s := open(t, m)
	defer s.Close()
	return read(s)
}

// notTorn leaves out what was being written when the process ended.
func notTorn(all []disk.DamageError) []disk.DamageError {
	return slices.DeleteFunc(all, func(d disk.DamageError) bool { return errors.Is(d, peer.ErrTorn) })
}

// What was synced is read back, and what was not may be there or not; a cut at the end is no damage.
func TestWhatWasSyncedLasts(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := new(disktest.Memory)
		s := open(t, m)
		synced, now := model{}, model{}
		for range 1 + rng.IntN(200) {
			k := uint32(rng.IntN(20))
			if err := write(s, k, now[k], now[k]+1, now[k] == 0 || rng.IntN(10) == 0, rng.IntN(8_000)); err != nil {
				t.Fatal(err)
			}
			if now[k]++; rng.IntN(5) == 0 {
				if err := s.Sync(false); err != nil {
					t.Fatal(err)
				}
				for k, v := range now {
					synced[k] = v
				}
			}
		}
		m.Crash(rng.Float64())
		have, damages := reopen(t, m)
		if damages = notTorn(damages); len(damages) > 0 {
			t.Fatalf("seed %d: %v", seed, damages)
		}
		for k, v := range now {
			if have[k] < synced[k] || have[k] > v {
				t.Fatalf("seed %d: key %d has %d, %d were synced and %d written", seed, k, have[k], synced[k], v)
			}
		}
		again, damages := reopen(t, m)
		if len(notTorn(damages)) > 0 || fmt.Sprint(again) != fmt.Sprint(have) {
			t.Fatalf("seed %d: read again: %v, %v, before %v", seed, damages, again, have)
		}
	}
}

// A directory takes at most about twice what is needed, and what is written is bounded, whatever changes.
func TestItStaysSmall(t *testing.T) {
	for name, of := range map[string]struct {
		keys, changed int // of those, chosen at random, a round
		hot           int // of the changed ones are of so few keys
		size          int
	}{
		"few change":       {200, 10, 0, 20_000},
		"all change":       {200, 200, 0, 20_000},
		"some change most": {400, 50, 20, 20_000},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		m := new(disktest.Memory)
		s := open(t, m)
		now, changed := model{}, int64(0)
		for round := range 300 {
			aged := s.Aged()
			for i := range of.changed {
				k := uint32(rng.IntN(of.keys))
				if i < of.hot {
					k %= 10
				}
				delta := of.size / 10
				whole := now[k] == 0 || s.Needed(k) > 2*int64(of.size) || slices.Contains(aged, k)
				size := delta
				if whole {
					size = of.size
				}
				if round > 0 {
					changed += int64(delta)
				}
				if err := write(s, k, now[k], now[k]+1, whole, size); err != nil {
					t.Fatal(err)
				}
				now[k]++
			}
			for _, k := range aged {
				if err := write(s, k, now[k], now[k], true, of.size); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Sync(true); err != nil {
				t.Fatal(err)
			}
			all, needed := s.Bytes()
			if all > max(2*needed, 4<<20)+4<<20 {
				t.Fatalf("%s, round %d: %d bytes, of which %d are needed", name, round, all, needed)
			}
		}
		have, damages := reopen(t, func() *disktest.Memory { m.Crash(1); return m }())
		if len(damages) > 0 || fmt.Sprint(have) != fmt.Sprint(now) {
			t.Errorf("%s: %v, %d keys of %d", name, damages, len(have), len(now))
		}
		t.Logf("%s: %.2f times the changed bytes were written", name, float64(s.Written)/float64(changed))
		if float64(s.Written) > 2.5*float64(changed)+float64(2*of.keys*of.size) {
			t.Errorf("%s: %d bytes were written, and %d changed", name, s.Written, changed)
		}
	}
}

// segments returns the names of the segments.
func segments(t *testing.T, m *disktest.Memory) (names []string) {
	t.Helper()
	all, err := m.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if strings.HasSuffix(n, ".seg") {
			names = append(names, n)
		}
	}
	return names
}

// Whatever happens to the files, a key never has what it never had, its records stay in order, and what is not as it
// was written is told with file and place.
func TestDamages(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	now := model{}
	rng := rand.New(rand.NewPCG(3, 3))
	var early *disktest.Memory
	for i := range 800 {
		k := uint32(rng.IntN(50))
		if err := write(s, k, now[k], now[k]+1, now[k]%8 == 0, rng.IntN(8_000)); err != nil {
			t.Fatal(err)
		}
		if now[k]++; i%50 == 0 {
			if err := s.Sync(i == 0); err != nil {
				t.Fatal(err)
			}
		}
		if i == 300 {
			early = m.Copy()
		}
	}
	if err := s.Sync(false); err != nil {
		t.Fatal(err)
	}
	if names := segments(t, m); len(names) < 3 {
		t.Fatalf("%d segments", len(names))
	}
	other := new(disktest.Memory)
	id := own
	id.Cluster = "other"
	o, err := disk.Open(disk.Config{Files: other, Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(o, 1, 0, 1<<40, true, 10), o.Sync(true)); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(1000) {
		d := m.Copy()
		kind := disktest.Damages()[seed%uint64(len(disktest.Damages()))]
		name, at, silent := d.Damage(kind, rand.New(rand.NewPCG(seed, 4)), early, other)
		if kind == "foreign" {
			if _, err := disk.Open(disk.Config{Files: d, Identity: own}); !errors.Is(err, disk.ErrForeign) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		d.Crash(1)
		have, damages := reopen(t, d)
		if len(damages) == 0 && !silent {
			t.Errorf("seed %d, %s of %s at %d: nothing is told", seed, kind, name, at)
		}
		for _, x := range damages {
			if x.File == "" || strings.Contains(x.Error(), "and the record is from") {
				t.Errorf("seed %d, %s: %v", seed, kind, x)
			}
		}
		for k, v := range have {
			if v > now[k] {
				t.Errorf("seed %d, %s: key %d has %d, and never had more than %d", seed, kind, k, v, now[k])
			}
		}
	}
}

// After an error nothing of the segment that was being written is built on. What was synced before stays until
// everything was written anew.
func TestAfterAnError(t *testing.T) {
	for _, operations := range []string{"write", "sync", "create", "names", "sync names", "sync remove", "names remove",
		"write names remove truncate", "sync late-names"} {
		m := new(disktest.Memory)
		s := open(t, m)
		for k := range uint32(10) {
			if err := write(s, k, 0, 1, true, 100); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Sync(true); err != nil {
			t.Fatal(err)
		}
		broken, late := errors.New("broken"), false
		m.SetFail(func(o string) error {
			if late = o != "create" && (late || o == "sync"); late && o == "names" {
				o = "late-names"
			}
			if slices.Contains(strings.Fields(operations), o) {
				return broken
			}
			return nil
		})
		for range 3 {
			var err error
			for i := range uint32(40) { // more than one segment
				if err = errors.Join(err, write(s, i%10, 1, 2, i == 0, 100_000)); err != nil {
					break
				}
			}
			if err = errors.Join(err, s.Sync(false)); !errors.Is(err, broken) {
				t.Fatalf("%s: %v", operations, err)
			}
		}
		d := m.Copy()
		if have, damages := reopen(t, d); len(have) != 10 || have[3] < 1 {
			t.Errorf("%s: after the error %v, %v", operations, have, damages)
		}
		m.SetFail(nil)
		for k := range uint32(10) {
			if err := write(s, k, 0, 3, true, 100); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Sync(true); err != nil {
			t.Fatal(err)
		}
		m.Crash(0)
		have, damages := reopen(t, m)
		if len(damages) > 0 || len(have) != 10 || have[0] != 3 || len(segments(t, m)) != 1 {
			t.Errorf("%s: it does not recover: %v, %v, %v", operations, have, damages, segments(t, m))
		}
	}
}

// A member that gets another secret reads what it wrote under the one before as long as it has both, also where the
// header of a segment is damaged. Once all was written anew, the new one suffices.
func TestASecondSecret(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	keep(t, s, 1, 0, 7, true, 10)
	next, both := own, own
	next.Secret = "next"
	both.Secret, both.Second = "next", own.Secret
	if _, err := disk.Open(disk.Config{Files: m, Identity: next}); !errors.Is(err, disk.ErrForeign) {
		t.Errorf("the new secret alone: %v", err)
	}
	damaged := m.Copy()
	damaged.Bytes(segments(t, m)[0])[20]++
	for files, want := range map[*disktest.Memory]int{damaged: 1, m: 0} {
		s := openAs(t, disk.Config{Files: files, Identity: both})
		if have, damages := read(s); len(damages) != want || have[1] != 7 {
			t.Errorf("with both: %v, %v", have, damages)
		}
		keep(t, s, 1, 7, 8, true, 10)
	}
	s = openAs(t, disk.Config{Files: m, Identity: next})
	if have, damages := read(s); len(damages) > 0 || have[1] != 8 {
		t.Errorf("with the new one: %v, %v", have, damages)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A directory with another one's files is refused, and the error says what differs and what to do. With Discard they
// are set aside.
func TestAnotherOnesDirectory(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	keep(t, s, 1, 0, 1, true, 10)
	for says, change := range map[string]func(*disk.Identity){
		`is of the cluster "weir", and this member is of "other"`: func(i *disk.Identity) { i.Cluster = "other" },
		"under another secret":                             func(i *disk.Identity) { i.Secret = "another" },
		`of the member "node-1", and this one is "node-2"`: func(i *disk.Identity) { i.Member = "node-2" },
	} {
		id := own
		change(&id)
		_, err := disk.Open(disk.Config{Files: m, Identity: id})
		if !errors.Is(err, disk.ErrForeign) || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "--discard-data") {
			t.Errorf("%v, want %q", err, says)
		}
	}
	name := segments(t, m)[0]
	future := m.Copy()
	future.Bytes(name)[9] = 200
	if _, err := disk.Open(disk.Config{Files: future, Identity: own}); err != nil {
		t.Errorf("a damaged version is a damage: %v", err)
	}
	id := own
	id.Cluster = "other"
	for range 2 {
		s := openAs(t, disk.Config{Files: m, Identity: id, Discard: true})
		if have, damages := read(s); len(have)+len(damages) > 0 {
			t.Errorf("discarded, and %v is there: %v", have, damages)
		}
		keep(t, s, 1, 0, 1, true, 10)
	}
	if all, _ := m.List(); len(all) != 2 {
		t.Errorf("%v: want a segment and one that was set aside", all)
	}
}

// On a real directory: modes, the lock, and what was written.
// stretched are files each of which is said to be long, with nothing in what is not there. It counts what is read.
type stretched struct {
	*disktest.Memory
	long, read int64
}

type stretchedFile struct {
	disk.File
	of *stretched
}

func (s *stretched) Open(name string) (disk.File, error) {
	f, err := s.Memory.Open(name)
	return stretchedFile{f, s}, err
}

func (f stretchedFile) Size() (int64, error) { return f.of.long, nil }

func (f stretchedFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, err
	}
	clear(b[n:])
	f.of.read += int64(len(b))
	return len(b), nil
}

// TestAFileWithHoles: a segment that is longer than any may be, such as one of 20 GB without blocks on the disk, is
// read as far as a segment goes, and what was written last is there.
func TestAFileWithHoles(t *testing.T) {
	m := new(disktest.Memory)
	s := open(t, m)
	keep(t, s, 7, 0, 5, true, 100)
	long := &stretched{Memory: m, long: 20 << 30}
	s = openAs(t, disk.Config{Files: long, Identity: own})
	defer s.Close()
	have, damages := read(s)
	if have[7] != 5 || len(notTorn(damages)) != 1 || !strings.Contains(fmt.Sprint(damages), "a segment has no more") {
		t.Errorf("%v, %v", have, damages)
	}
	if most := int64(128 << 20); long.read > most {
		t.Errorf("%d bytes were read, want at most %d", long.read, most)
	}
}

func TestARealDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := openAs(t, disk.Config{Dir: dir, Identity: own})
	if _, err := disk.Open(disk.Config{Dir: dir, Identity: own}); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	keep(t, s, 7, 0, 5, true, 100)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if i, err := f.Info(); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", f.Name(), i.Mode(), err)
		}
	}
	if i, err := os.Stat(dir); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", i.Mode(), err)
	}
	other := filepath.Join(dir, "0000000000000009.seg") // a named pipe would be opened for ever
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Open(disk.Config{Dir: dir, Identity: own}); err == nil ||
		!strings.Contains(err.Error(), "not a file") {
		t.Errorf("a directory among the segments: %v", err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	again, err := disk.Open(disk.Config{Dir: dir, Identity: own})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if have, damages := read(again); len(damages) > 0 || have[7] != 5 {
		t.Errorf("%v, %v", have, damages)
	}
}

// Whatever a segment has, reading ends without a panic, and takes no record that was not written.
func FuzzRead(f *testing.F) {
	m := new(disktest.Memory)
	s := open(f, m)
	for k := range uint32(5) {
		if err := errors.Join(write(s, k, 0, 1, true, 30), write(s, k, 1, 2, false, 5)); err != nil {
			f.Fatal(err)
		}
	}
	if err := errors.Join(s.Sync(true), s.Close()); err != nil {
		f.Fatal(err)
	}
	const name = "0000000000000001.seg"
	whole := m.Bytes(name)
	f.Add(whole, 0, byte(0))
	f.Add(whole[:50], 10, byte(255))
	f.Add([]byte{}, 0, byte(1))
	f.Fuzz(func(t *testing.T, b []byte, at int, x byte) {
		b = slices.Clone(b)
		if at >= 0 && at < len(b) {
			b[at] ^= x
		}
		d := new(disktest.Memory)
		d.Put(name, b)
		s, err := disk.Open(disk.Config{Files: d, Identity: own})
		if errors.Is(err, disk.ErrForeign) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Read(func(r *peer.Record) error {
			if len(r.Keys) > disk.MaxKeys || len(r.Data) > len(b) {
				t.Errorf("a record of %d keys and %d bytes", len(r.Keys), len(r.Data))
			}
			return nil
		})
	})
}

// A grant is synced in the middle of a save: what a half written snapshot replaces is still there.
func TestASyncInTheMiddleDeletesNothing(t *testing.T) {
	s := open(t, new(disktest.Memory))
	err := errors.Join(write(s, 1, 0, 1, true, 2<<20), s.Sync(true), write(s, 1, 1, 2, true, 100), s.Sync(false))
	if err != nil {
		t.Fatal(err)
	}
	if all, _ := s.Bytes(); all < 2<<20 {
		t.Errorf("%d bytes are left", all)
	}
	if err := s.Sync(true); err != nil {
		t.Fatal(err)
	}
	if all, _ := s.Bytes(); all >= 2<<20 {
		t.Errorf("%d bytes are left when it is complete", all)
	}
}
