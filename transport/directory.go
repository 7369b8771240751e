package transport

import (
	"errors"
	"time"
)

// Directory lists, forgets and expels members of a cluster. Its methods are called from many
// goroutines.
type Directory interface {
	// Members returns the members as this node sees them, ordered by name.
	Members() []Member
	// Forget removes a dead member from the cluster. An error that wraps
	// [limiter.ErrInvalid] is one that the caller must correct.
	Forget(name string) error
	// Expel throws a member out of the cluster until Readmit lets it in again. The errors are
	// like those of Forget.
	Expel(name string) error
	Readmit(name string) error
}

// Member is a member of a cluster in JSON.
type Member struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	Instance string `json:"instance"`
	// State is "joining", "active", "leaving", "dead" or "expelled".
	State string `json:"state"`
	// Unreachable reports that the node that was asked receives the member's gossip but
	// has no connection to it.
	Unreachable bool `json:"unreachable,omitempty"`
	// Share is the fraction of the ring that it should own, 0 to 1.
	Share     float64 `json:"share"`
	RulesHash string  `json:"rules_hash"`
	GRPCAddr  string  `json:"grpc_addr,omitempty"`
	HTTPAddr  string  `json:"http_addr,omitempty"`
	// AdminAddr is the address of its administration for other machines; empty if it
	// publishes none.
	AdminAddr string `json:"admin_addr,omitempty"`
	Version   string `json:"version,omitempty"`
	// ZoneData is the release of its time zone database, such as "2025c"; empty if its
	// program does not tell.
	ZoneData string `json:"zone_data,omitempty"`
	// Self is set for the node that was asked only; nil for others.
	Self *MemberSelf `json:"self,omitempty"`
}

// MemberSelf is what a member knows of itself only.
type MemberSelf struct {
	Keys            int     `json:"keys"`
	Checks          uint64  `json:"checks"`
	ChecksPerSecond uint64  `json:"checks_per_second"`
	LagMs           float64 `json:"lag_ms"`
	Unacknowledged  uint64  `json:"unacknowledged"`
	// Warnings are the reasons why a ready node does not decide as its rules say.
	Warnings []string `json:"warnings,omitempty"`
}

// TopKey is an entry in a list of top keys, in JSON. Count is at most Error too high.
type TopKey struct {
	Key   string `json:"key"`
	Count uint64 `json:"count"`
	Error uint64 `json:"error"`
	Lent  Lent   `json:"lent,omitzero"`
}

// Lent is what is lent of a key, in JSON: units, and of slices a rate of them a second.
type Lent struct {
	Holders int       `json:"holders"`
	Units   uint64    `json:"units"`
	Rate    uint64    `json:"rate,omitempty"`
	Until   time.Time `json:"until"`
}

// Reloaded is the response of /v1/reload: the rules that are in force.
type Reloaded struct {
	RulesHash string `json:"rules_hash"`
	Rules     int    `json:"rules"`
	// Warnings are about parts of the file that probably do not do what was meant.
	Warnings []RuleWarning `json:"warnings"`
}

// RuleWarning is a warning about a rules file, in JSON. Line and Column are counted from 1.
// Rule is empty for one about the defaults, Instead if there is nothing to write.
type RuleWarning struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Rule    string `json:"rule,omitempty"`
	Text    string `json:"text"`
	Instead string `json:"instead,omitempty"`
}

// members is the response of /v1/members.
type members struct {
	Members []Member `json:"members"`
}

// top is the response of /v1/top.
type top struct {
	Hottest []TopKey `json:"hottest"`
	Denied  []TopKey `json:"denied"`
	// Warnings are those of [AdminOptions].
	Warnings []string `json:"warnings,omitempty"`
}

const (
	topDefault, topMost = 20, 1000
	maxForgetBytes      = 4 << 10
)

var (
	errAlone    = errors.New("this node is in no cluster; give it --name, and --join with the addresses of others")
	errTop      = errors.New("n must be 1 to 1000")
	errForget   = errors.New(`the body must be {"name": "NAME"} with the name of a member`)
	errNoReload = errors.New("there is nothing to reload: no rules file was named; start the node with --rules FILE")
	errNoTopper = errors.New("this node has no lists of top keys: its counters are elsewhere")
)

// Millis returns a duration in milliseconds, for [MemberSelf].
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
