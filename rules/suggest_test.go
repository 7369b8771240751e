package rules

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"name", "match", "limits", "unlimited", "count_rejected", "key", "keys"}
	for got, want := range map[string]string{
		"nmae": "name", "Limits": "limits", "limit": "limits", "unlimted": "unlimited", "count-rejected": "count_rejected",
		"countrejected": "count_rejected", "kys": "keys", "ke": "key", "mtach": "match", "": "", "colour": "", "zzz": "",
		"limitations":                 "",
		strings.Repeat("limits", 100): "",
	} {
		if s := nearest(got, known); s != want {
			t.Errorf("%q: suggests %q, want %q", got, s, want)
		}
	}
}

func TestUnknown(t *testing.T) {
	if got := unknown("unit", "hous", []string{"hour", "day"}); got != `unknown unit "hous"; did you mean "hour"?` {
		t.Error(got)
	}
	if got := unknown("unit", "fortnight", []string{"hour", "day"}); got != `unknown unit "fortnight"; known: hour, day` {
		t.Error(got)
	}
}
