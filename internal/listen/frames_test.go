package listen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// frameOf returns a frame of HTTP/2.
func frameOf(kind, flags byte, stream uint32, payload []byte) []byte {
	out := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

// messageOf returns a gRPC message, whose length field may be wrong.
func messageOf(length int, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), data...)
}

// noted is the calls of frames, as text, with the data of each stream.
type noted struct {
	frames []string
	data   map[uint32][]byte
}

func (n *noted) frame(kind, flags byte, stream uint32, size int) {
	n.frames = append(n.frames, fmt.Sprint(kind, flags, stream, size))
}

func (n *noted) part(stream uint32, data []byte) {
	n.data[stream] = append(n.data[stream], data...)
}

// Frames are read the same in whatever pieces they come.
func TestFramesInPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	for range 200 {
		var wire []byte
		want := noted{data: map[uint32][]byte{}}
		var ends []int // of frames after which another stream's may come
		for range 20 {
			stream := uint32(rng.IntN(4))
			payload := make([]byte, rng.IntN(40))
			for i := range payload {
				payload[i] = byte(rng.Uint32())
			}
			kind, flags := byte(rng.IntN(10)), byte(0)
			switch kind {
			case frameData:
				data := payload
				if rng.IntN(2) == 0 {
					pad := rng.IntN(9)
					flags = flagPadded
					payload = slices.Concat([]byte{byte(pad)}, payload, make([]byte, pad))
				}
				if stream != 0 && len(data) > 0 {
					want.data[stream] = append(want.data[stream], data...)
				}
			case frameHeaders, frameContinuation:
				flags = byte(rng.IntN(2)) * flagEndHeaders
			}
			wire = append(wire, frameOf(kind, flags, stream, payload)...)
			if kind != frameHeaders && kind != frameContinuation || flags&flagEndHeaders != 0 {
				ends = append(ends, len(wire))
			}
			if stream != 0 {
				want.frame(kind, flags, stream, len(payload))
			}
		}
		got := noted{data: map[uint32][]byte{}}
		var f frames
		for at := 0; at < len(wire); {
			n := min(1+rng.IntN(30), len(wire)-at)
			f.read(wire[at:at+n], &got)
			if at += n; f.between() && !slices.Contains(ends, at) {
				t.Fatalf("a frame is taken to end at byte %d of %v", at, ends)
			}
		}
		delete(got.data, 0)
		if !slices.Equal(got.frames, want.frames) || fmt.Sprint(got.data) != fmt.Sprint(want.data) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	}
}

// Messages are counted when they begin, and what is there of the last is known.
func TestMessagesInPieces(t *testing.T) {
	wire := slices.Concat(messageOf(0, nil), messageOf(3, []byte("abc")), messageOf(300, bytes.Repeat([]byte("x"), 300)),
		messageOf(7, []byte("half")))
	for size := 1; size <= len(wire); size++ {
		var m messages
		for part := range slices.Chunk(wire, size) {
			m.read(part)
		}
		if m.begun != 4 || m.got != messageHead+4 || !m.half() {
			t.Fatalf("in pieces of %d: %+v", size, m)
		}
		if m.read([]byte("end")); m.half() || m.begun != 4 {
			t.Fatalf("in pieces of %d, at the end: %+v", size, m)
		}
		if m.read([]byte{0}); !m.half() || m.begun != 5 || m.got != 1 {
			t.Fatalf("in pieces of %d, then: %+v", size, m)
		}
	}
}

// FuzzFrames: whatever bytes pass by, they are read in any pieces as at once.
func FuzzFrames(f *testing.F) {
	f.Add(frameOf(frameData, flagPadded, 1, []byte{3, 1, 2, 0, 0, 0}), 1)
	f.Add(frameOf(frameData, flagPadded, 1, []byte{200, 1}), 2) // more padding than there is
	f.Add(frameOf(frameData, flagPadded, 1, nil), 2)
	f.Add(slices.Concat(frameOf(frameHeaders, 0, 3, []byte("x")), frameOf(frameContinuation, flagEndHeaders, 3, nil)), 3)
	f.Fuzz(func(t *testing.T, wire []byte, size int) {
		size = 1 + int(uint(size)%64)
		var whole, pieces frames
		a, b := noted{data: map[uint32][]byte{}}, noted{data: map[uint32][]byte{}}
		whole.read(wire, &a)
		for part := range slices.Chunk(wire, size) {
			pieces.read(part, &b)
		}
		for _, f := range []*frames{&whole, &pieces} {
			clear(f.head[f.have:]) // bytes of earlier headers, which only one of them keeps
		}
		if whole != pieces || !slices.Equal(a.frames, b.frames) || fmt.Sprint(a.data) != fmt.Sprint(b.data) {
			t.Fatalf("at once %+v %v, in pieces of %d %+v %v", whole, a, size, pieces, b)
		}
		n := 0
		for _, d := range a.data {
			n += len(d)
		}
		if n > len(wire) {
			t.Fatalf("%d bytes of data in %d", n, len(wire))
		}
	})
}
