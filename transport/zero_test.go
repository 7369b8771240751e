package transport_test

import (
	"strings"
	"testing"
)

// A cost of 0 charges nothing over HTTP, by GET and by POST, alone and in a batch, given
// by the request or by the rule.
func TestCostZeroOnlyPeeks(t *testing.T) {
	s := newServer(t, "version: 1\nrules:\n- {name: r, match: {path: \"^/r$\"}, key: [user], limits: [2/hour]}\n"+
		"- {name: free, match: {path: \"^/free$\"}, key: [user], cost: 0, limits: [2/hour]}\n", nil)
	for range 20 {
		for what, got := range map[string]reply{
			"GET":         s.get(t, "/v1/check?path=/r&user=ada&cost=0"),
			"POST":        s.post(t, "/v1/check", `{"path":"/r","user":"ada","cost":0}`),
			"peek":        s.get(t, "/v1/check?path=/r&user=ada&peek=true"),
			"the rule's":  s.get(t, "/v1/check?path=/free&user=ada"),
			"the rule's2": s.post(t, "/v1/check", `{"path":"/free","user":"ada"}`),
		} {
			if got.status != 200 || !strings.Contains(got.body, `"remaining":2`) {
				t.Fatalf("%s: %d %s", what, got.status, got.body)
			}
		}
	}
	if got := s.get(t, "/v1/check?path=/r&user=ada"); !strings.Contains(got.body, `"remaining":1`) {
		t.Errorf("premise: a check that costs 1: %s", got.body)
	}
}
