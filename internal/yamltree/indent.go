package yamltree

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/spelling"
)

// indentLevel is a column in which a line may begin.
type indentLevel struct {
	column, line int    // from 0 and from 1
	name         string // what begins there: a field, or "-"
}

// misindented returns what is wrong with the indentation of the first line, up to number
// last, that does not begin where a line may; ok is false if there is none. It looks only
// at files in block style: what is within brackets or in a block of text may begin
// anywhere.
func misindented(data []byte, last int) (line, column int, text string, ok bool) {
	var levels []indentLevel
	depth, opened := 0, true // opened: the last line left its value to the lines below
	number := 0
	for raw := range bytes.Lines(data) {
		if number++; number > last {
			return 0, 0, "", false
		}
		s := strings.TrimRight(string(raw), " \t\r\n")
		rest := strings.TrimLeft(s, " ")
		indent := len(s) - len(rest)
		if rest == "" || rest[0] == '#' {
			continue
		}
		if depth > 0 {
			depth = max(0, depth+brackets(rest))
			continue
		}
		if rest[0] == '\t' {
			return number, indent + 1, "this line is indented with a tab, which YAML does not allow: replace it by blanks", true
		}
		if strings.HasSuffix(rest, "|") || strings.HasSuffix(rest, ">") || strings.HasPrefix(rest, "---") {
			return 0, 0, "", false
		}
		if len(rest) > 1 && rest[0] == '-' && rest[1] != ' ' && rest[1] != '-' {
			text = "a dash needs a blank after it: write " + spelling.Quote("- "+spelling.Clip(rest[1:]))
			return number, indent + 1, text, true
		}
		top := -1
		if len(levels) > 0 {
			top = levels[len(levels)-1].column
		}
		if indent > top && !opened {
			return number, indent + 1, wrongIndent(levels, indent, rest), true
		}
		if indent < top && !slices.ContainsFunc(levels, func(l indentLevel) bool { return l.column == indent }) {
			return number, indent + 1, wrongIndent(levels, indent, rest), true
		}
		levels = slices.DeleteFunc(levels, func(l indentLevel) bool { return l.column >= indent })
		for at := indent; rest != ""; {
			if rest != "-" && !strings.HasPrefix(rest, "- ") {
				if name, _, ok := strings.Cut(rest, ":"); ok && rest[0] != '{' && rest[0] != '[' {
					levels = append(levels, indentLevel{at, number, name})
				}
				break
			}
			levels = append(levels, indentLevel{at, number, "-"})
			inner := strings.TrimLeft(rest[1:], " ")
			at, rest = at+len(rest)-len(inner), inner
		}
		depth = max(0, brackets(rest))
		opened = rest == "" || strings.HasSuffix(withoutComment(rest), ":")
	}
	return 0, 0, "", false
}

// wrongIndent says where a line may begin.
func wrongIndent(levels []indentLevel, indent int, rest string) string {
	what, dash := "this element of a list", strings.HasPrefix(rest, "-")
	if !dash {
		name, _, _ := strings.Cut(rest, ":")
		what = spelling.Quote(name)
	}
	best := -1
	for i, l := range levels {
		if (l.name == "-") == dash && (best < 0 || distance(l.column, indent) <= distance(levels[best].column, indent)) {
			best = i
		}
	}
	if best < 0 {
		return fmt.Sprintf("%s is indented by %s, and nothing above it begins there: indent it as the lines beside which "+
			"it belongs", what, blanks(indent))
	}
	l := levels[best]
	return fmt.Sprintf("%s is indented by %s, and nothing above it begins there: indent it by %d to put it beside %s of "+
		"line %d",
		what, blanks(indent), l.column, spelling.Quote(l.name), l.line)
}

func blanks(n int) string {
	if n == 1 {
		return "1 blank"
	}
	return fmt.Sprint(n, " blanks")
}

func distance(a, b int) int { return max(a-b, b-a) }

// brackets returns by how much a line changes the depth of brackets and braces. What is in
// quotes does not count.
func brackets(s string) (depth int) {
	var within byte
	for i := range len(s) {
		switch c := s[i]; {
		case within != 0:
			if c == within && !(c == '"' && s[i-1] == '\\') {
				within = 0
			}
		case c == '"' || c == '\'':
			if i == 0 || strings.IndexByte(" [{,:", s[i-1]) >= 0 {
				within = c
			}
		case c == '#' && i > 0 && s[i-1] == ' ':
			return depth
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		}
	}
	return depth
}

// withoutComment returns a line without the comment at its end.
func withoutComment(s string) string {
	if i := strings.Index(s, " #"); i >= 0 {
		s = s[:i]
	}
	return strings.TrimRight(s, " ")
}
