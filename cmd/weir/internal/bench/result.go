package bench

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

// Report is what a run found, in the form of its JSON.
type Report struct {
	Machine Machine `json:"machine"`
	Keys    int     `json:"keys"`
	Callers int     `json:"callers"`
	Rounds  int     `json:"rounds"`
	RoundMs float64 `json:"round_ms"`
	// LeftOut are the modes that were not measured, for want of an address.
	LeftOut []Mode   `json:"left_out,omitempty"`
	Results []Result `json:"results"`
}

// Machine is where a run took place.
type Machine struct {
	Go    string `json:"go"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
}

// Result is what one mode did with one shape. Pointers are nil where a figure
// cannot be had: of another node's process nothing is known.
type Result struct {
	Shape Shape `json:"shape"`
	Mode  Mode  `json:"mode"`
	// Checks is how many were answered, Seconds how long all rounds took together.
	Checks  uint64  `json:"checks"`
	Seconds float64 `json:"seconds"`
	// ChecksPerSecond is of all rounds together, Slowest and Fastest of one round.
	ChecksPerSecond float64 `json:"checks_per_second"`
	Slowest         float64 `json:"slowest_round_per_second"`
	Fastest         float64 `json:"fastest_round_per_second"`
	// P50 and P99 are how long a caller waited for an answer, to 1 %.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	// CPU is processor time of this process per check, callers included; RedisCPU
	// that of Redis.
	CPU      *float64 `json:"cpu_us_per_check,omitempty"`
	RedisCPU *float64 `json:"redis_cpu_us_per_check,omitempty"`
	// Memory is what a key took in this process's heap, copies included;
	// RedisMemory what it took in Redis. Both in bytes, of keys asked for once; nil
	// too where more went meanwhile than came, as it may with few keys.
	Memory      *float64 `json:"bytes_per_key,omitempty"`
	RedisMemory *float64 `json:"redis_bytes_per_key,omitempty"`
	Premises    Premises `json:"premises"`
}

// Premises are what was made sure of: a run in which they do not hold has no
// result.
type Premises struct {
	// Filled keys were each asked for once, and answered as the first of their
	// name; so they are as many.
	Filled int `json:"keys_filled"`
	// Held is how many counters of exhausted keys there were then; nil where
	// nobody tells.
	Held *int `json:"counters_held,omitempty"`
	// Hit is how many different keys were asked for while it was measured.
	Hit int `json:"keys_hit"`
	// Allowed and Denied are the answers, each of which was as it should be.
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
}

// Text returns the report for people.
func (r *Report) Text(style term.Style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, %d callers, %s of %g ms in turn; %s %s/%s, %s\n",
		term.Plural(r.Keys, "key"), "half of them exhausted", r.Callers, term.Plural(r.Rounds, "round"), r.RoundMs,
		r.Machine.Go, r.Machine.OS, r.Machine.Arch, term.Plural(r.Machine.Cores, "core"))
	var t term.Table
	head := []term.Cell{}
	for _, h := range []string{"", "checks/s", "slowest-fastest round", "p50", "p99", "CPU/check", "Redis CPU/check", "bytes/key", "Redis bytes/key", "allowed", "denied", "keys hit"} {
		head = append(head, term.Cell{Text: h, Paint: style.Dim})
	}
	t.Row(head...)
	for i := range r.Results {
		t.Row(r.Results[i].cells(style)...)
	}
	b.WriteString(t.String())
	for _, m := range r.LeftOut {
		fmt.Fprintf(&b, "left out: %s, for want of an address\n", m)
	}
	b.WriteString("premises: every answer was as it should be, and every key a key of its own\n")
	return b.String()
}

func (r *Result) cells(style term.Style) []term.Cell {
	texts := []string{
		string(r.Shape) + " " + string(r.Mode),
		term.Count(int(r.ChecksPerSecond)),
		term.Count(int(r.Slowest)) + "-" + term.Count(int(r.Fastest)),
		term.Micros(&r.P50), term.Micros(&r.P99), term.Micros(r.CPU), term.Micros(r.RedisCPU), whole(r.Memory), whole(r.RedisMemory),
		term.Count(int(r.Premises.Allowed)), term.Count(int(r.Premises.Denied)), term.Count(r.Premises.Hit),
	}
	cells := make([]term.Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	cells[0].Paint = style.Bold
	return cells
}

func whole(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}
