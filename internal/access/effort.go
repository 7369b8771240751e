package access

import "fmt"

// Bounds of what the YAML library is given. For each part, a value or what separates values, it takes
// about 800 bytes while it reads. Of a mapping in lines it copies all keys for each key.
const (
	maxParts = 100_000
	maxLines = 100 // of one mapping; the longest one of a permissions file needs ten
)

// tooMuch returns why a file is not read, "" if it is: reading it could take too much memory or
// time. It counts no part less than the library does, except within texts in quotes.
func tooMuch(data []byte) string {
	parts := 0
	var lines lineCount
	for i := range data {
		last := i+1 == len(data) || data[i+1] == ' ' || data[i+1] == '\n' || data[i+1] == '\r'
		switch data[i] {
		case ':':
			if last && lines.key() {
				return fmt.Sprintf("a mapping has more than %d lines: a permissions file needs fewer", maxLines)
			}
			if last {
				parts++
			}
		case '-', '?':
			if last {
				parts++
			}
		case '\n', ',', '[', ']', '{', '}', '"', '\'', '#', '&', '*', '!', '|', '>', '%':
			parts++
		}
		lines.next(data[i])
		if parts > maxParts {
			return fmt.Sprintf("the file has more than %d parts (lines, fields, elements of lists and brackets): give one "+
				"identity to callers that may do the same, or leave out comments", maxParts)
		}
	}
	return ""
}

// lineCount counts the lines of each mapping that has not ended, by how far they are indented.
type lineCount struct {
	lines  [8*maxDepth + 1]int
	indent int
	inside bool // the line has more than blanks and dashes so far
	keyed  bool // a key of the line is counted
}

// next takes the next byte.
func (c *lineCount) next(b byte) {
	switch {
	case b == '\n':
		c.indent, c.inside, c.keyed = 0, false, false
	case c.inside:
	case b == ' ':
		c.indent++
	case b == '-':
		c.clear() // an element begins, and with it other mappings
		c.indent++
	default:
		c.inside = true
		if b == '{' || b == '}' || b == '[' || b == ']' { // no key of a mapping in lines
			c.keyed = true
			c.clear()
		}
	}
}

// key counts a line with a key. It reports whether its mapping has too many.
func (c *lineCount) key() bool {
	if c.keyed || c.indent >= len(c.lines) {
		return false
	}
	c.keyed = true
	c.clear()
	c.lines[c.indent]++
	return c.lines[c.indent] > maxLines
}

// clear forgets the mappings that are indented further than the line.
func (c *lineCount) clear() {
	if c.indent < len(c.lines) {
		clear(c.lines[c.indent+1:])
	}
}
