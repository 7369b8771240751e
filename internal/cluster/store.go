package cluster

import "github.com/weirlimit/weir/internal/peer"

// Store is an open disk: records in the order in which they were appended. It is used by one goroutine at a time.
// [github.com/weirlimit/weir/internal/disk] has one.
type Store interface {
	// Read calls take with all records, oldest first. Keys whose records build on one that cannot be read are left out.
	// It returns what could not be read; it wraps
	// [peer.ErrTorn] if it was being written when the process ended.
	Read(take func(*peer.Record) error) []error
	// Append adds a record, and Sync returns when all that was appended lasts. After an error of one of them all keys
	// must be replaced; Sync with complete says that they were, since the last error or the start.
	Append(r *peer.Record) error
	Sync(complete bool) error
	// GiveUp does what an error does, if it is not known what the last calls did.
	GiveUp()
	// Aged returns keys that should be replaced, so that room is free again, and Needed how many bytes the records of a
	// key take.
	Aged() []uint32
	Needed(key uint32) int64
	// Bytes returns the bytes of all records, and of those that are needed. Written is how many bytes were written.
	Bytes() (all, needed int64)
	Written() int64
	Close() error
}
