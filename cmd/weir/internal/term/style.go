// Package term makes text for people: colour, aligned columns and progress where
// a terminal shows it, plain text everywhere else.
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

// Style tells what a stream can show. The zero value is plain text, for files
// and pipes.
type Style struct {
	// Terminal allows aligned columns and progress.
	Terminal bool
	// Color allows escape sequences for colour.
	Color bool
	// Width is how many columns a line has, 0 where that is not known.
	Width int
}

// StyleOf looks at a stream. Colour is off where the environment says
// NO_COLOR (with any value but the empty one) or that the terminal is dumb.
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

// Bold returns the text in bold, or as it is where the stream shows no colour.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Dim returns the text dimmed, or as it is where the stream shows no colour.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Red returns the text in red, or as it is where the stream shows no colour.
func (s Style) Red(text string) string { return s.paint("31", text) }

// Green returns the text in green, or as it is where the stream shows no colour.
func (s Style) Green(text string) string { return s.paint("32", text) }

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Clean makes text from outside fit to print: control characters, which could
// drive a terminal or break a line in two, and bytes that are no UTF-8 are
// written as escapes, such as \x1b. Other text is returned as it is.
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

// needsEscape also takes a genuine U+FFFD for a broken byte, which does no harm.
func needsEscape(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

// Cut shortens text to at most width columns, with an ellipsis in the middle,
// where both ends of a key say something. A width below 8 cuts nothing.
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

// Count writes a number with a comma between thousands.
func Count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Percent writes part of whole in per cent with one digit; of nothing it is 0.
func Percent(part, whole int) string {
	if whole == 0 {
		return "0.0 %"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}

// Plural writes a count with its noun: "1 rule", "2 rules".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Micros writes a time that is given in microseconds, "-" for none.
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
