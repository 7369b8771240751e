// Package seldom says when a line of a log that recurs may be logged again, so that nobody who can
// cause one can fill the log.
package seldom

import (
	"maps"
	"sync"
	"time"
)

// Every is how long a kind of line is not logged again.
const Every = time.Minute

// maxKinds bounds the kinds of lines that are told apart. All beyond it are one.
const maxKinds = 512

// Lines tells how often each kind of line was logged lately. The zero value has logged none. It is
// safe for concurrent use.
type Lines struct {
	mu    sync.Mutex
	kinds map[string]logged
}

// logged is a kind of line that was logged: when, and how often one was not since.
type logged struct {
	at   time.Time
	more int
}

// Due reports whether a line of a kind is to be logged at now, and how many of that kind were not
// logged since the last one that was.
func (l *Lines) Due(kind string, now time.Time) (more int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.kinds[kind]; !known && len(l.kinds) >= maxKinds {
		maps.DeleteFunc(l.kinds, func(_ string, k logged) bool { return now.Sub(k.at) >= Every })
		if len(l.kinds) >= maxKinds {
			kind = ""
		}
	}
	k, known := l.kinds[kind]
	if known && now.Sub(k.at) < Every {
		k.more++
		l.kinds[kind] = k
		return 0, false
	}
	if l.kinds == nil {
		l.kinds = map[string]logged{}
	}
	l.kinds[kind] = logged{at: now}
	return k.more, true
}
