package access

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestEffort: no file takes more than some 100 MB to read, counted over the whole reading, nor
// time that grows with the square of its length. Long files that have a use are read.
func TestEffort(t *testing.T) {
	const most = 200 << 20
	full := func(from string) string { return strings.Repeat(from, (MaxFile-1000)/len(from)) }
	each := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "N", fmt.Sprint(i)))
		}
		return b.String()
	}
	const tooManyParts, tooManyLines = "more than 100000 parts", "more than 100 fields in one mapping"
	const flow = "  - {name: nN, certificate: {cn: cN}, tenant: tN, may: {check: [nN-], peek: [nN-]}}\n"
	for _, c := range []struct{ name, text, want string }{
		{"identities", "identities:\n" + each(3000, flow), ""},
		{"identities in lines", "identities:\n" + each(3000,
			"  - name: nN\n    certificate:\n      cn: cN\n    may:\n      check:\n        - nN-\n"), ""},
		{"short identities", "identities:\n" + each(maxIdentities-1, "- {name: N, certificate: {cn: N}}\n"), ""},
		{"identities in brackets", "identities: [{" + each(1000, "\n  name: nN,\n  certificate: {cn: nN},\n}, {") +
			"name: x, certificate: {cn: x}}]\n", ""},
		{"JSON", "{\n  \"identities\": [" + each(1000,
			"\n    {\n      \"name\": \"nN\",\n      \"certificate\": {\n        \"cn\": \"nN\"\n      }\n    },") +
			"\n    {\"name\": \"x\", \"certificate\": {\"cn\": \"x\"}}\n  ]\n}\n", ""},
		{"too many identities", "identities:\n" + each(8000, flow), tooManyParts},
		{"commas", "a: [" + full(","), tooManyParts},
		{"a list", "a: [" + full("a,") + "]", tooManyParts},
		{"a list in lines", full("- a\n"), tooManyParts},
		{"comments", full("#\n"), tooManyParts},
		{"quotes", "a: [" + full("'' "), tooManyParts},
		{"keys", strings.Repeat("a:\n", 49000), tooManyLines},
		{"keys after a comment with a bracket", "# {\n" + strings.Repeat("a:\n", 49000), tooManyLines},
		{"keys below a key", "anonymous:\n" + strings.Repeat("  a: a\n", 49000), tooManyLines},
		{"keys in an element", "identities:\n  - b: a\n" + strings.Repeat("    a: a\n", 49000), tooManyLines},
		{"mappings", strings.Repeat("- "+strings.Repeat("  a: a\n", 99)[2:], 500), "given twice"},
		{"keys in braces", "a: {" + strings.Repeat("a: a, ", 40000) + "}", tooManyLines},
	} {
		file := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := Check(file)
		runtime.ReadMemStats(&after)
		if text := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(text, c.want) {
			t.Errorf("%s, %d bytes: %.200s, want %q", c.name, len(c.text), text, c.want)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s, %d bytes: reading takes %d MB, want %d at most", c.name, len(c.text), took>>20, most>>20)
		}
	}
}
