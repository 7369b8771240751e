package rules

import (
	"strings"
	"testing"
	"unicode/utf8"
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

// Text from a file is quoted so that no error is long, breaks a line or cuts a
// character.
func TestQuoteAndClip(t *testing.T) {
	for _, s := range []string{"", "a", "é", "a\nb\t\x00", strings.Repeat("é", 50), strings.Repeat("é", 51),
		"a" + strings.Repeat("é", 51), strings.Repeat("\xff", 300), strings.Repeat("\n", 101)} {
		q, c := quote(s), clip(s)
		if len(q) > 4*100+5 || strings.ContainsAny(q, "\n\t\x00") || !utf8.ValidString(q) {
			t.Errorf("%q is quoted as %q", s, q)
		}
		if len(c) > 2*100+3 || strings.ContainsAny(c, "\n\t") || utf8.ValidString(s) && !utf8.ValidString(c) {
			t.Errorf("%q is clipped to %q", s, c)
		}
		if long := len(s) > 100; strings.HasSuffix(q, `"...`) != long || strings.HasSuffix(c, "...") != long {
			t.Errorf("%d bytes: %s, %s", len(s), q, c)
		}
	}
}
