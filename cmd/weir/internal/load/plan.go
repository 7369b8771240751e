// Package load asks nodes over the network, as fast as they answer or at a rate
// that is kept whatever they do, and measures how long answers take, what they
// cost the processes, and whether they are right: of each key as many checks must
// be allowed as its limit says, and not one more or less.
package load

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Mode is how nodes are asked.
type Mode string

// The modes.
const (
	// Unary is a call for each check; a client has one call at a time, on a
	// connection of its own.
	Unary Mode = "unary"
	// Batch is a call for some checks, a message for each; otherwise as Unary.
	Batch Mode = "batch"
	// Stream is columns on a stream for each client, two messages on their way at a
	// time, or up to 16 where a rate is to be kept.
	Stream Mode = "stream"
	// Client is package client: a call of its Check for each check. All clients, which
	// are goroutines, share one. It asks owners where nodes are run with --share-ring,
	// else the first server as long as that answers.
	Client Mode = "client"
	// ClientBatch is its CheckBatch; otherwise as Client.
	ClientBatch Mode = "client-batch"
)

// Modes returns all modes, in the order in which they are shown.
func Modes() []Mode { return []Mode{Unary, Batch, Stream, Client, ClientBatch} }

// clients is how many there are unless told otherwise, for so many servers.
func (m Mode) clients(servers int) int {
	switch m {
	case Unary:
		return max(64, servers)
	case Client:
		return 128
	case ClientBatch:
		return 4
	default:
		return max(2, servers)
	}
}

// Bounds of a run.
const (
	// MaxKeys bounds Config.Keys.
	MaxKeys = 1_000_000
	// MaxClients bounds Config.Clients.
	MaxClients = 1024
	// MaxBatch bounds Config.Batch; a message must have no more.
	MaxBatch = 1000
	// MaxServers bounds Config.Servers.
	MaxServers = 64
	// MaxRate bounds each of Config.Rates.
	MaxRate = 100_000_000
	// MaxPoints bounds how often modes times rates are measured, and MaxDuration
	// how long each is: less than the shortest window that must not end meanwhile.
	MaxPoints   = 64
	MaxDuration = 20 * time.Minute
)

// Dist is how keys are drawn.
type Dist string

// The distributions.
const (
	// Uniform draws all keys alike.
	Uniform Dist = "uniform"
	// Zipf draws key k in proportion to 1/(k+1)^1.1.
	Zipf Dist = "zipf"
)

// Config says what is measured.
type Config struct {
	// Servers are the gRPC addresses of nodes, host:port. Clients ask them in turn:
	// client i asks server i modulo their number.
	Servers []string
	// Modes, at least one; each is measured at each rate.
	Modes []Mode
	// Rates are in checks a second, for all clients together; 0 asks again as soon
	// as there is an answer. At least one.
	Rates []float64
	// Duration is how long each point is measured, 1 ms to [MaxDuration].
	Duration time.Duration
	// Clients is how many there are; 0 for as many as the mode needs.
	Clients int
	// Batch is how many checks a message has in the modes that have several, 1 to
	// [MaxBatch].
	Batch int
	// Keys is how many keys are asked for, 1 to [MaxKeys], Dist how they are drawn.
	Keys int
	Dist Dist
	// Limited is the percentage of keys that are under a limit; the others are never
	// denied.
	Limited int
	// Processes are the process ids of servers on this machine, and Metrics where
	// the administration of servers is, host:port: either tells the processor time, and Metrics
	// tells allocations and collections too. Both may be empty, but not both given, as
	// nobody could tell whether a node is in both.
	Processes []int
	Metrics   []string
	// Progress is told what is done now; default nobody.
	Progress func(what string)

	least int           // calls of each worker where no rate is kept, however long it takes; for tests
	warm  time.Duration // how long connecting may take; default warmWithin
}

// Validate says all that is wrong with a configuration.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := len(c.Servers); n < 1 || n > MaxServers {
		bad("%d servers are out of range: give 1 to %d", n, MaxServers)
	}
	if len(c.Modes) == 0 {
		bad("no mode is given: give some of %s", strings.Join(names(Modes()), ","))
	}
	for i, m := range c.Modes {
		if !slices.Contains(Modes(), m) {
			bad("there is no mode %q: give some of %s", m, strings.Join(names(Modes()), ","))
		} else if slices.Contains(c.Modes[:i], m) {
			bad("the mode %s is given twice", m)
		}
	}
	if n := len(c.Modes) * len(c.Rates); n > MaxPoints {
		bad("%d modes at %d rates are too many to measure: %d in all are allowed", len(c.Modes), len(c.Rates), MaxPoints)
	}
	for _, r := range c.Rates {
		if !(r >= 0 && r <= MaxRate) {
			bad("a rate of %v checks a second is out of range: give up to %d", r, MaxRate)
		}
	}
	for _, r := range c.Rates {
		for _, m := range c.Modes {
			if b := c.batch(m); r > 0 && r < float64(b) {
				bad("a rate of %g checks a second is less than a batch of %d: less than one would be sent each second; give a smaller batch", r, b)
				break
			}
		}
	}
	for i, pid := range c.Processes {
		if slices.Contains(c.Processes[:i], pid) {
			bad("the process %d is given twice, and would be counted twice", pid)
		}
	}
	for i, at := range c.Metrics {
		if slices.Contains(c.Metrics[:i], at) {
			bad("the metrics of %s are given twice, and would be counted twice", at)
		}
	}
	if len(c.Processes) > 0 && len(c.Metrics) > 0 {
		bad("processes and metrics are both given, and a node of both would be counted twice: give one kind for all nodes")
	}
	if c.Duration < time.Millisecond || c.Duration > MaxDuration {
		bad("a duration of %v is out of range: give 1ms to %v", c.Duration, MaxDuration)
	}
	if c.Clients < 0 || c.Clients > MaxClients {
		bad("%d clients are out of range: give 1 to %d", c.Clients, MaxClients)
	}
	if c.Batch < 1 || c.Batch > MaxBatch {
		bad("a batch of %d checks is out of range: give 1 to %d", c.Batch, MaxBatch)
	}
	if c.Keys < 1 || c.Keys > MaxKeys {
		bad("%d keys are out of range: give 1 to %d", c.Keys, MaxKeys)
	}
	if c.Limited < 0 || c.Limited > 100 {
		bad("%d %% of the keys is out of range: give 0 to 100", c.Limited)
	}
	if c.Dist != Uniform && c.Dist != Zipf {
		bad("there is no distribution %q: give %s or %s", c.Dist, Uniform, Zipf)
	}
	return errors.Join(errs...)
}

func names[T ~string](all []T) []string {
	out := make([]string, len(all))
	for i, n := range all {
		out[i] = string(n)
	}
	return out
}

// shares tells whether all clients share one way.
func (m Mode) shares() bool { return m == Client || m == ClientBatch }

// batch returns how many checks a call has.
func (c *Config) batch(m Mode) int {
	if m == Unary || m == Client {
		return 1
	}
	return c.Batch
}
