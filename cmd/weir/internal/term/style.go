// Package term formats text for people: with colour, aligned columns and progress on a
// terminal that supports them, and as plain text elsewhere.
package term

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Style is the capabilities of a stream. The zero value is plain text, for files and
// pipes.
type Style struct {
	// Terminal allows aligned columns and progress.
	Terminal bool
	// Color allows escape sequences for colour.
	Color bool
	// Width is the number of columns of a line, 0 if it is not known.
	Width int
}

// StyleOf returns the capabilities of a stream. Colour is off if the environment has
// NO_COLOR (not empty), or says that the terminal is dumb.
func StyleOf(f *os.File, getenv func(string) string) Style {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return Style{}
	}
	s := Style{Terminal: true, Color: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
	if w, _, err := term.GetSize(fd); err == nil {
		s.Width = w
	}
	return s
}

// Bold returns the text in bold, or unchanged if the stream has no colour.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Dim returns the text dimmed, or unchanged if the stream has no colour.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Red returns the text in red, or unchanged if the stream has no colour.
func (s Style) Red(text string) string { return s.paint("31", text) }

// Green returns the text in green, or unchanged if the stream has no colour.
func (s Style) Green(text string) string { return s.paint("32", text) }

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Clean makes text from outside safe to print: control characters, which could control
// a terminal or break a line, and bytes that are not UTF-8 are written as escapes, such
// as \x1b. Other text is unchanged.
func Clean(s string) string {
	if !strings.ContainsFunc(s, needsEscape) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if needsEscape(r) {
			quoted := strconv.QuoteToASCII(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// needsEscape also escapes a genuine U+FFFD, which it cannot distinguish from an
// invalid byte; that does no harm.
func needsEscape(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

// Cut shortens text to at most width columns, with an ellipsis in the middle, since
// both ends of a key are informative. With a width below 8 it cuts nothing.
func Cut(text string, width int) string {
	n := utf8.RuneCountInString(text)
	if width < 8 || n <= width {
		return text
	}
	runes := []rune(text)
	tail := (width - 1) / 2
	head := width - 1 - tail
	return string(runes[:head]) + "…" + string(runes[n-tail:])
}

// Count formats a number with commas between thousands.
func Count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Percent formats part of whole as a percentage with one decimal; it is 0 if whole is
// 0.
func Percent(part, whole int) string {
	if whole == 0 {
		return "0.0 %"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}

// Plural formats a count with its noun: "1 rule", "2 rules".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Micros formats a time in microseconds, "-" for none.
func Micros(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v >= 1000:
		return fmt.Sprintf("%.1fms", *v/1000)
	case *v >= 10:
		return fmt.Sprintf("%.0fµs", *v)
	}
	return fmt.Sprintf("%.2fµs", *v)
}
