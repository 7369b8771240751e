package replay

import (
	"math"
	"time"
)

// Report is one result, ready to be written.
type Report struct {
	*Result
	// SkippedLines are those that did not count and those refused.
	SkippedLines int
	// Spent is the time spent on reading and deciding.
	Spent time.Duration
}

type jsonReport struct {
	RulesFile    string              `json:"rules_file,omitempty"`
	Requests     int                 `json:"requests"`
	Allowed      int                 `json:"allowed"`
	Denied       int                 `json:"denied"`
	ShadowDenied *int                `json:"shadow_denied,omitempty"`
	Unmatched    int                 `json:"unmatched"`
	SkippedLines int                 `json:"skipped_lines"`
	Seconds      float64             `json:"seconds"`
	Rules        map[string]jsonRule `json:"rules"`
	TopDenied    []jsonKey           `json:"top_denied"`
}

type jsonRule struct {
	Allowed      int                  `json:"allowed"`
	Denied       int                  `json:"denied"`
	ShadowDenied *int                 `json:"shadow_denied,omitempty"`
	Keys         int                  `json:"keys"`
	Limits       map[string]jsonLimit `json:"limits"`
}

type jsonLimit struct {
	Denied       int  `json:"denied"`
	ShadowDenied *int `json:"shadow_denied,omitempty"`
}

type jsonKey struct {
	Key    string `json:"key"`
	Denied int    `json:"denied"`
}

// JSON returns what to encode for programs: an object for one report, an array
// of objects that name their rules file for several.
func JSON(reports []Report, top int) any {
	objects := make([]jsonReport, len(reports))
	for i, r := range reports {
		objects[i] = r.json(top)
	}
	if len(objects) == 1 {
		objects[0].RulesFile = ""
		return objects[0]
	}
	return objects
}

func (r *Report) json(top int) jsonReport {
	out := jsonReport{
		RulesFile: r.RulesFile, Requests: r.Requests, Allowed: r.Allowed, Denied: r.Denied,
		ShadowDenied: shadow(r.HasShadow, r.ShadowDenied), Unmatched: r.Unmatched, SkippedLines: r.SkippedLines,
		Seconds: math.Round(r.Spent.Seconds()*1e6) / 1e6,
		Rules:   make(map[string]jsonRule, len(r.Rules)), TopDenied: []jsonKey{},
	}
	for _, rule := range r.Rules {
		j := jsonRule{
			Allowed: rule.Allowed, Denied: rule.Denied, ShadowDenied: shadow(rule.Shadow, rule.ShadowDenied),
			Keys: rule.Keys, Limits: make(map[string]jsonLimit, len(rule.Limits)),
		}
		for _, l := range rule.Limits {
			j.Limits[l.Name] = jsonLimit{Denied: l.Denied, ShadowDenied: shadow(rule.Shadow, l.ShadowDenied)}
		}
		out.Rules[rule.Name] = j
	}
	for _, k := range r.Top(top) {
		out.TopDenied = append(out.TopDenied, jsonKey{k.Key, k.Denied})
	}
	return out
}

// shadow returns a count only where there is something in the shadow, so that
// other reports do not speak of it.
func shadow(has bool, n int) *int {
	if !has {
		return nil
	}
	return &n
}
