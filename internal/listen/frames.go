package listen

import "encoding/binary"

// frames parses one direction of an HTTP/2 connection, in pieces of any size, and
// reports the frames of streams. It reads only the headers of frames and of gRPC
// messages, and keeps a few bytes of state. The zero value is at the start of a frame.
type frames struct {
	skip   int // bytes of an ignored payload before the next frame
	head   [frameHead]byte
	have   int // bytes of head that have been read
	data   int // bytes left of a DATA frame
	pad    int // how many of these are padding; padUnknown: the next byte says
	stream uint32
	open   bool // within a block of header fields
}

const (
	frameHead  = 9
	padUnknown = -1

	frameData, frameHeaders, frameReset, frameContinuation = 0, 1, 3, 9

	flagEndStream, flagEndHeaders, flagPadded = 1, 4, 8
)

// framesTo receives what frames has read. Its methods do not keep their bytes.
type framesTo interface {
	// frame receives the header of a frame of a stream, which has so many bytes.
	frame(kind, flags byte, stream uint32, size int)
	part(stream uint32, data []byte)
}

// between reports whether the next byte starts a frame, and a frame of another stream
// may be inserted before it.
func (f *frames) between() bool { return f.have == 0 && f.skip == 0 && f.data == 0 && !f.open }

// rest returns how many bytes of the present frame, or of its header, are yet to come;
// at least 1.
func (f *frames) rest() int {
	if n := f.skip + f.data; n > 0 {
		return n
	}
	return frameHead - f.have
}

// read reads the next piece of the connection.
func (f *frames) read(p []byte, to framesTo) {
	for len(p) > 0 {
		switch {
		case f.skip > 0:
			n := min(f.skip, len(p))
			f.skip, p = f.skip-n, p[n:]
		case f.data > 0:
			p = f.readData(p, to)
		case f.have == 0 && len(p) >= frameHead: // as usual
			f.begin(p[:frameHead], to)
			p = p[frameHead:]
		default:
			n := copy(f.head[f.have:], p)
			p = p[n:]
			if f.have += n; f.have == frameHead {
				f.have = 0
				f.begin(f.head[:], to)
			}
		}
	}
}

// begin starts a frame with a complete header.
func (f *frames) begin(head []byte, to framesTo) {
	_ = head[frameHead-1]
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags := head[3], head[4]
	f.stream = binary.BigEndian.Uint32(head[5:]) &^ (1 << 31)
	switch kind {
	case frameHeaders, frameContinuation:
		f.open = flags&flagEndHeaders == 0
	case frameData:
		f.data, f.pad = size, 0
		if flags&flagPadded != 0 {
			f.pad = padUnknown
		}
		size = 0
	}
	f.skip = size
	if f.stream != 0 {
		to.frame(kind, flags, f.stream, f.skip+f.data)
	}
}

// readData reads the payload of a DATA frame from p and returns the rest of p.
func (f *frames) readData(p []byte, to framesTo) []byte {
	if f.pad == padUnknown {
		f.pad = int(p[0])
		f.data--
		return p[1:]
	}
	n := min(f.data, len(p))
	if real := min(n, f.data-f.pad); real > 0 {
		to.part(f.stream, p[:real])
	}
	f.data -= n
	return p[n:]
}

// messages counts the gRPC messages in one direction of a stream. The zero value is at
// the start of a message.
type messages struct {
	begun int // messages that have begun, including one that is incomplete
	got   int // bytes of the last message, including its header
	left  int // bytes that it lacks, as far as its header is known
	head  [messageHead]byte
	have  int // bytes of head that have been read
}

const messageHead = 5

// read reads the next data of the stream.
func (m *messages) read(p []byte) {
	for len(p) > 0 {
		if m.left > 0 {
			n := min(m.left, len(p))
			m.left, m.got, p = m.left-n, m.got+n, p[n:]
			continue
		}
		if m.have == 0 {
			m.begun, m.got = m.begun+1, 0
		}
		n := copy(m.head[m.have:], p)
		m.got, p = m.got+n, p[n:]
		if m.have += n; m.have == messageHead {
			m.have, m.left = 0, int(binary.BigEndian.Uint32(m.head[1:]))
		}
	}
}

// half reports whether the last message is incomplete.
func (m *messages) half() bool { return m.left > 0 || m.have > 0 }
