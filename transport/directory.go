package transport

import (
	"errors"
	"time"
)

// Directory tells operators of the members of a cluster. Its methods are called
// from many goroutines.
type Directory interface {
	// Members returns the members as this node sees them, by name.
	Members() []Member
	// Forget has a dead member count no more. An error that wraps
	// [limiter.ErrInvalid] is the asker's to mend.
	Forget(name string) error
}

// Member is a member of a cluster in JSON.
type Member struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	Instance string `json:"instance"`
	// State is joining, active, leaving or dead.
	State string `json:"state"`
	// Unreachable: the node that is asked has no connection to it, though it gossips.
	Unreachable bool `json:"unreachable,omitempty"`
	// Share of the ring, 0 to 1.
	Share     float64 `json:"share"`
	RulesHash string  `json:"rules_hash"`
	GRPCAddr  string  `json:"grpc_addr,omitempty"`
	HTTPAddr  string  `json:"http_addr,omitempty"`
	// AdminAddr is where its administration can be asked from elsewhere; empty: it
	// does not say.
	AdminAddr string `json:"admin_addr,omitempty"`
	Version   string `json:"version,omitempty"`
	// Self is what the node that is asked knows of itself alone; nil for others.
	Self *MemberSelf `json:"self,omitempty"`
}

// MemberSelf is what a member says of itself.
type MemberSelf struct {
	Keys            int     `json:"keys"`
	Checks          uint64  `json:"checks"`
	ChecksPerSecond uint64  `json:"checks_per_second"`
	LagMs           float64 `json:"lag_ms"`
	Unacknowledged  uint64  `json:"unacknowledged"`
}

// TopKey is a key in a list of top keys, in JSON: its count is at most Error too
// high.
type TopKey struct {
	Key   string `json:"key"`
	Count uint64 `json:"count"`
	Error uint64 `json:"error"`
}

// members is the answer of /v1/members.
type members struct {
	Members []Member `json:"members"`
}

// top is the answer of /v1/top.
type top struct {
	Hottest []TopKey `json:"hottest"`
	Denied  []TopKey `json:"denied"`
}

const (
	topDefault, topMost = 20, 1000
	maxForgetBytes      = 4 << 10
)

var (
	errAlone    = errors.New("this node is in no cluster; give it --name, and --join with the addresses of others")
	errTop      = errors.New("n must be 1 to 1000")
	errForget   = errors.New(`the body must be {"name": "NAME"} with the name of a dead member`)
	errNoTopper = errors.New("this node has no lists of top keys: its counters are elsewhere")
)

// Millis returns a duration in milliseconds, for [MemberSelf].
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
