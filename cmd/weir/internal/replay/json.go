package replay

import (
	"math"
	"time"
)

// Report is one result with the data to print it.
type Report struct {
	*Result
	// SkippedLines counts invalid lines and refused requests.
	SkippedLines int
	// Spent is the time for reading and deciding.
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
	Quotas       map[string]jsonRule `json:"quotas,omitempty"`
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

// JSON returns the value to encode as JSON: an object for one report, an array of
// objects with their rules files for several.
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
		if !rule.Quota {
			out.Rules[rule.Name] = j
			continue
		}
		if out.Quotas == nil {
			out.Quotas = make(map[string]jsonRule)
		}
		out.Quotas[rule.Name] = j
	}
	for _, k := range r.Top(top) {
		out.TopDenied = append(out.TopDenied, jsonKey{k.Key, k.Denied})
	}
	return out
}

// shadow returns a count only if there are shadow rules, so that other reports omit it.
func shadow(has bool, n int) *int {
	if !has {
		return nil
	}
	return &n
}
