package listen

import (
	"time"
)

// maxApart bounds the open connections of a site that is served apart from checks. Its
// clients are a few operators, scrapers and probes.
const maxApart = 64

// maxApartFrom bounds those of one address.
const maxApartFrom = 8

// maxWatch and maxWatchFrom bound, besides, those on which someone watches a page.
const maxWatch, maxWatchFrom = 64, 16

const (
	defaultConnections = 16384
	defaultFromAddress = 4096
	// keptFiles is how many file descriptors are reserved and not used for clients'
	// connections: those of administration and health, and of everything else in the
	// process. Without the reserve, clients could take all descriptors, and the health
	// probes would fail.
	keptFiles = 2*maxApart + maxWatch + 128
	// searchPause is how long no other search for a connection to replace begins after
	// one that found none. A search looks at all connections.
	searchPause = 10 * time.Millisecond
)

// ConnectionsWithin returns how many connections each of two listeners may have open in
// a process that may open so many files.
func ConnectionsWithin(files int) int {
	return min(defaultConnections, max((files-keptFiles)/2, 16))
}
