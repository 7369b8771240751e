package peer

import "errors"

// Record is what a disk keeps of one frame.
type Record struct {
	// At is the instant at which the frame was filled, in microseconds since 1970.
	At int64
	// Keys are what it is about.
	Keys []RecordKey
	// Data is the frame, as a link carries it.
	Data []byte
	// Refused are the keys that could not be taken, if reading the record was an error; none means all.
	Refused []uint32
}

// ErrTorn is wrapped by what a disk says of a record that was being written when the process ended.
var ErrTorn = errors.New("this was being written when the process ended")

// RecordKey is one key that a record is about.
type RecordKey struct {
	// Key is below 16384.
	Key uint32
	// Replaces means that no earlier record of the key is needed any more.
	Replaces bool
	// Weight is the part of the record that belongs to the key, in any unit. With Replaces, 0 says that nothing is kept
	// of the key.
	Weight uint32
}
