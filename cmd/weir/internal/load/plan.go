// Package load sends checks to nodes over the network, as fast as they answer or at a
// given rate. It measures how long answers take and what they cost the processes, and
// verifies them: exactly as many checks of each key must be allowed as its limit says.
package load

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/dialing"
)

// Mode is how checks are sent.
type Mode string

// The modes.
const (
	// Unary is one call for each check. A client has one call at a time, on its own
	// connection.
	Unary Mode = "unary"
	// Batch is one call for several checks, with a message for each; otherwise like
	// Unary.
	Batch Mode = "batch"
	// Stream is columns on one stream for each client, with two messages in flight, or
	// up to 16 at a given rate.
	Stream Mode = "stream"
	// Client is package client, with one call of CheckInto for each check. All clients are
	// goroutines that share one client. It asks owners directly if the nodes run with
	// --share-ring, otherwise the first server as long as that answers.
	Client Mode = "client"
	// ClientBatch is its CheckBatchInto; otherwise like Client.
	ClientBatch Mode = "client-batch"
)

// Modes returns all modes, in the order in which they are shown.
func Modes() []Mode { return []Mode{Unary, Batch, Stream, Client, ClientBatch} }

// clients returns the default number of clients for so many servers.
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
	MaxKeys    = 1_000_000
	MaxClients = 1024
	// MaxBatch bounds Config.Batch. Nodes refuse larger messages.
	MaxBatch   = 1000
	MaxServers = 64
	MaxRate    = 100_000_000
	// MaxPoints bounds the number of modes times that of rates, and MaxDuration the
	// time of each point. Together they take less than the shortest window that must
	// not end during the run.
	MaxPoints   = 64
	MaxDuration = 20 * time.Minute
)

// Dist is the distribution of the keys.
type Dist string

// The distributions.
const (
	// Uniform draws all keys with equal probability.
	Uniform Dist = "uniform"
	// Zipf draws key k in proportion to 1/(k+1)^1.1.
	Zipf Dist = "zipf"
)

// Config is what is measured.
type Config struct {
	// Servers are the gRPC addresses of nodes, host:port. Client i asks server i modulo
	// their number.
	Servers []string
	// Modes to measure, at least one. Each is measured at each rate.
	Modes []Mode
	// Rates are the rates to measure, at least one, in checks per second of all clients
	// together. With 0 each client sends a check as soon as the previous one is
	// answered.
	Rates []float64
	// Duration is how long each point is measured, 1 ms to [MaxDuration].
	Duration time.Duration
	// Clients is the number of clients; 0 for the default of the mode.
	Clients int
	// Batch is the number of checks in a message, 1 to [MaxBatch], in modes with
	// several.
	Batch int
	// Keys is the number of keys, 1 to [MaxKeys], Dist their distribution.
	Keys int
	Dist Dist
	// Limited is the percentage of keys with a limit. Other keys are never denied.
	Limited int
	// NoIDs has the Go client send checks without ids: then a check that is retried may count
	// twice. It changes nothing in other modes, which send none.
	NoIDs bool
	// Leases has the Go client borrow units, see [client.Config]. It changes nothing in other modes.
	Leases bool
	// Processes are the process ids of servers on this machine. Metrics are the
	// administration addresses of servers, host:port. Both provide the processor time;
	// Metrics also provides allocations and garbage collections. At most one of them
	// may be given, since a node in both could not be recognized.
	Processes []int
	Metrics   []string
	// Credentials are what clients show to the servers, and to Metrics; nil: nothing.
	Credentials *dialing.Credentials
	// Progress receives a description of the present step; default none.
	Progress func(what string)

	least int           // the fewest calls of each worker without a rate, however long they take; for tests
	warm  time.Duration // the longest time for connecting; default warmWithin
}

// Validate returns an error that names all problems of a configuration.
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
				bad("a rate of %g checks a second is less than a batch of %d: less than one would be sent each second; give a "+
					"smaller batch", r, b)
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

// shares reports whether all clients share one lane.
func (m Mode) shares() bool { return m == Client || m == ClientBatch }

// batch returns the number of checks in a call.
func (c *Config) batch(m Mode) int {
	if m == Unary || m == Client {
		return 1
	}
	return c.Batch
}
