package disk_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/disk"
	"github.com/weirlimit/weir/internal/disk/disktest"
)

// A file whose number leaves no room for later segments, or is far from all others, is told, and segments go on from
// the others. So what is written next is there at the next start.
func TestANumberWithoutRoomIsTold(t *testing.T) {
	for _, strange := range []string{"ffffffffffffffff.seg", "fffffffffffffffe.seg", "4000000000000001.seg",
		"4000000000000000.seg", "0000000200000000.seg"} {
		m := new(disktest.Memory)
		s := open(t, m)
		keep(t, s, 7, 0, 1, true, 50)
		m.Put(strange, m.Bytes(firstSegment))
		for start := range uint64(3) {
			s := open(t, m)
			have, damages := read(s)
			if have[7] != 1+start {
				t.Errorf("%s, start %d: %v", strange, start, have)
			}
			if len(damages) != 1 || damages[0].File != strange || !strings.Contains(damages[0].Error(), "number") {
				t.Errorf("%s, start %d: damages %v", strange, start, damages)
			}
			keep(t, s, 7, 0, 2+start, true, 50)
		}
		if m.Bytes("0000000000000004.seg") == nil {
			t.Errorf("%s: segments do not go on from the first: %v", strange, segments(t, m))
		}
	}
}

// A directory whose only segment leaves no room is refused until it is set aside: it may be what was counted.
func TestNoRoomForLaterSegments(t *testing.T) {
	m := new(disktest.Memory)
	m.Put("4000000000000000.seg", nil)
	c := disk.Config{Files: m, Identity: own}
	if _, err := disk.Open(c); err == nil || !strings.Contains(err.Error(), "4000000000000000.seg: its number") {
		t.Fatalf("it is opened: %v", err)
	}
	c.Discard = true
	s := openAs(t, c)
	keep(t, s, 7, 0, 5, true, 50)
	if have, damages := reopen(t, m); have[7] != 5 || len(damages) > 0 {
		t.Errorf("%v, %v", have, damages)
	}
}

// Records that lie in each other, each with a valid checksum and nothing that can be read, do not make reading slow.
func TestForgedRecordsWithoutEnd(t *testing.T) {
	const records, apart, head = 500, 16, 12
	const length = 0x2086a0 // read as a number of keys, it is too many
	m := new(disktest.Memory)
	s := open(t, m)
	keep(t, s, 1, 0, 1, true, 50)
	b := m.Bytes(firstSegment)
	from := len(b)
	b = append(b, bytes.Repeat([]byte{0xff}, records*apart+head+length)...)
	polynomial := crc32.MakeTable(crc32.Castagnoli)
	var id []byte
	for _, name := range []string{own.Cluster, own.Member, own.Secret} {
		id = append(append(id, byte(len(name))), name...)
	}
	for i := records - 1; i >= 0; i-- {
		at := from + i*apart
		place := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 1), uint64(at))
		place = binary.LittleEndian.AppendUint32(place, length)
		sum := crc32.Update(crc32.Checksum(id, polynomial), polynomial, place)
		copy(b[at:], "\xb5Wr\x1e")
		binary.LittleEndian.PutUint32(b[at+4:], length)
		binary.LittleEndian.PutUint32(b[at+8:], crc32.Update(sum, polynomial, b[at+head:at+head+length]))
	}
	m.Put(firstSegment, b)
	files := &counted{Memory: m}
	s = openAs(t, disk.Config{Files: files, Identity: own})
	defer s.Close()
	if have, damages := read(s); have[1] != 1 || len(have) != 1 || len(damages) != 1 {
		t.Errorf("%v, %v", have, damages)
	}
	if most := int64(20 * len(b)); files.bytes > most {
		t.Errorf("%d bytes were read of a file of %d, want at most %d", files.bytes, len(b), most)
	}
}

// counted counts what is read.
type counted struct {
	*disktest.Memory
	bytes int64
}

type countedFile struct {
	disk.File
	of *counted
}

func (c *counted) Open(name string) (disk.File, error) {
	f, err := c.Memory.Open(name)
	return countedFile{f, c}, err
}

func (f countedFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(b, at)
	f.of.bytes += int64(n)
	return n, err
}
