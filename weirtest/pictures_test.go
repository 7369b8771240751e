package weirtest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/weirtest"
)

// picture returns what one key is granted that asks once in each tenth of a window, for
// three windows: # for a grant, . for a denial, and a mark after each window if the
// algorithm has windows that begin and end.
func picture(t *testing.T, algorithm string, windows bool) string {
	t.Helper()
	node := weirtest.New(t, "rules: [{name: a, key: [rule], limits: [{limit: 4, window: 10s, algorithm: "+algorithm+"}]}]")
	var b strings.Builder
	for i := range 30 {
		d, err := node.Check(t.Context(), weir.Request{})
		if err != nil {
			t.Fatal(err)
		}
		b.WriteByte(map[bool]byte{true: '#', false: '.'}[d.Allowed])
		if windows && i%10 == 9 {
			b.WriteByte('|')
		}
		node.Advance(time.Second)
	}
	return b.String()
}

// The pictures of docs/rules.md are what the algorithms do.
func TestPictures(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for algorithm, windows := range map[string]bool{
		"sliding_counter": true, "fixed_window": true, "sliding_log": false, "sliding_window": false,
		"token_bucket": false, "leaky_bucket": false, "gcra": false,
	} {
		// A heading has the name, alone or with others that have the same picture.
		at := regexp.MustCompile("\n\\*\\*`[^*]*\\b" + algorithm + "`[^*]*\\*\\*").FindIndex(page)
		if at == nil {
			t.Errorf("the page has no heading for %s", algorithm)
			continue
		}
		_, rest, _ := strings.Cut(string(page[at[1]:]), "```text\n")
		line, _, _ := strings.Cut(rest, "\n")
		have, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if want := picture(t, algorithm, windows); have != want {
			t.Errorf("%s: the page has\n %s\nand it grants\n %s", algorithm, have, want)
		}
	}
}
