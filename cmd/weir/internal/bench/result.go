package bench

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

// Report is the result of a run, in the form of its JSON.
type Report struct {
	Machine Machine `json:"machine"`
	Keys    int     `json:"keys"`
	Callers int     `json:"callers"`
	Rounds  int     `json:"rounds"`
	RoundMs float64 `json:"round_ms"`
	// LeftOut are the modes that were not measured because they had no address.
	LeftOut []Mode   `json:"left_out,omitempty"`
	Results []Result `json:"results"`
}

// Machine describes where a run took place.
type Machine struct {
	Go    string `json:"go"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
}

// Result is the result of one mode with one shape. Pointers are nil for figures that
// are not available, such as those of another process.
type Result struct {
	Shape Shape `json:"shape"`
	Mode  Mode  `json:"mode"`
	// Checks is the number of answered checks, Seconds the time of all rounds together.
	Checks  uint64  `json:"checks"`
	Seconds float64 `json:"seconds"`
	// ChecksPerSecond is for all rounds together; Slowest and Fastest are for single
	// rounds.
	ChecksPerSecond float64 `json:"checks_per_second"`
	Slowest         float64 `json:"slowest_round_per_second"`
	Fastest         float64 `json:"fastest_round_per_second"`
	// P50 and P99 are quantiles of the time that a caller waited for an answer, exact
	// to 1 %.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	// CPU is processor time of this process per check, including the callers; RedisCPU
	// is that of Redis.
	CPU      *float64 `json:"cpu_us_per_check,omitempty"`
	RedisCPU *float64 `json:"redis_cpu_us_per_check,omitempty"`
	// Memory is the memory of a key in this process's heap, including copies;
	// RedisMemory is that in Redis. Both are in bytes, for keys checked once. They are
	// also nil if the heap shrank meanwhile, which can happen with few keys.
	Memory      *float64 `json:"bytes_per_key,omitempty"`
	RedisMemory *float64 `json:"redis_bytes_per_key,omitempty"`
	Premises    Premises `json:"premises"`
}

// Premises are the conditions that were verified. A run in which they do not hold has
// no result.
type Premises struct {
	// Filled keys were each checked once, and answered like the first check of a key.
	// So there are as many distinct keys.
	Filled int `json:"keys_filled"`
	// Held is the number of counters of exhausted keys at that time; nil if it is not
	// known.
	Held *int `json:"counters_held,omitempty"`
	// Hit is the number of different keys checked during the measurement.
	Hit int `json:"keys_hit"`
	// Allowed and Denied count the answers. Each of them was correct.
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
}

// Text returns the report in readable form.
func (r *Report) Text(style term.Style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, %d callers, %s of %g ms in turn; %s %s/%s, %s\n",
		term.Plural(r.Keys, "key"), "half of them exhausted", r.Callers, term.Plural(r.Rounds, "round"), r.RoundMs,
		r.Machine.Go, r.Machine.OS, r.Machine.Arch, term.Plural(r.Machine.Cores, "core"))
	var t term.Table
	t.Head(style.Dim, "", "checks/s", "slowest-fastest round", "p50", "p99", "CPU/check", "Redis CPU/check",
		"bytes/key", "Redis bytes/key", "allowed", "denied", "keys hit")
	for i := range r.Results {
		t.Texts(style.Bold, r.Results[i].texts()...)
	}
	b.WriteString(t.String())
	for _, m := range r.LeftOut {
		fmt.Fprintf(&b, "left out: %s, for want of an address\n", m)
	}
	b.WriteString("premises: every answer was as it should be, and every key a key of its own\n")
	return b.String()
}

func (r *Result) texts() []string {
	return []string{
		string(r.Shape) + " " + string(r.Mode),
		term.Count(int(r.ChecksPerSecond)),
		term.Count(int(r.Slowest)) + "-" + term.Count(int(r.Fastest)),
		term.Micros(&r.P50), term.Micros(&r.P99), term.Micros(r.CPU), term.Micros(r.RedisCPU), whole(r.Memory),
		whole(r.RedisMemory),
		term.Count(int(r.Premises.Allowed)), term.Count(int(r.Premises.Denied)), term.Count(r.Premises.Hit),
	}
}

func whole(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}
