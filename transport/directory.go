package transport

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
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
	Version   string  `json:"version,omitempty"`
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
	errNotHere  = errors.New("a member is forgotten by who is on the node's own machine: ask there, over its loopback address")
	errTop      = errors.New("n must be 1 to 1000")
	errForget   = errors.New(`the body must be {"name": "NAME"} with the name of a dead member`)
	errNoTopper = errors.New("this node has no lists of top keys: its counters are elsewhere")
)

// serveMembers tells who the members are.
func (f *front) serveMembers(w http.ResponseWriter, _ *http.Request) {
	if f.directory == nil {
		writeProblem(w, http.StatusNotFound, errAlone.Error())
		return
	}
	writeJSON(w, http.StatusOK, members{append([]Member{}, f.directory.Members()...)})
}

// serveForget has a dead member count no more. That loosens what the others
// promise, so it is for those who are on the machine, whatever address is served.
func (f *front) serveForget(w http.ResponseWriter, r *http.Request) {
	if f.directory == nil {
		writeProblem(w, http.StatusNotFound, errAlone.Error())
		return
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err != nil || !net.ParseIP(host).IsLoopback() {
		writeProblem(w, http.StatusForbidden, errNotHere.Error())
		return
	}
	body, err := readBody(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	name := ""
	err = eachField(body, func(field string, raw json.RawMessage) error {
		if field != "name" {
			return errForget
		}
		return json.Unmarshal(raw, &name)
	})
	if len(body) > maxForgetBytes || err != nil || name == "" {
		writeProblem(w, http.StatusBadRequest, errForget.Error())
		return
	}
	if err := f.directory.Forget(name); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, members{append([]Member{}, f.directory.Members()...)})
}

// serveTop tells which keys are asked for and denied most.
func (f *front) serveTop(w http.ResponseWriter, r *http.Request) {
	n := topDefault
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > topMost {
			writeProblem(w, http.StatusBadRequest, errTop.Error())
			return
		}
	}
	if f.top == nil {
		writeProblem(w, http.StatusNotFound, errNoTopper.Error())
		return
	}
	hottest, denied := f.top(n)
	writeJSON(w, http.StatusOK, top{append([]TopKey{}, hottest...), append([]TopKey{}, denied...)})
}

// Millis returns a duration in milliseconds, for [MemberSelf].
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
