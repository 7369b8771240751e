package term

import (
	"strings"
	"unicode/utf8"
)

// Cell is one field of a [Table].
type Cell struct {
	// Text must hold no line end and no escape sequence.
	Text string
	// Paint colours the text after it was padded to its column; nil for none.
	Paint func(string) string
}

// Table is rows of cells, written in aligned columns: the first left-aligned, the
// others, which are numbers, right-aligned.
type Table struct {
	rows [][]Cell
}

// Row appends a row. Rows may differ in length.
func (t *Table) Row(cells ...Cell) { t.rows = append(t.rows, cells) }

// Head appends a row of texts, cleaned and all painted.
func (t *Table) Head(paint func(string) string, texts ...string) {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i] = Cell{Clean(text), paint}
	}
	t.Row(cells...)
}

// Texts appends a row of texts, of which paint, unless nil, colours the first.
func (t *Table) Texts(paint func(string) string, texts ...string) {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	cells[0].Paint = paint
	t.Row(cells...)
}

// gap separates columns.
const gap = "  "

// String returns the table, one line for each row, without trailing blanks.
func (t *Table) String() string {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			if i > 0 {
				line.WriteString(gap)
			}
			line.WriteString(c.padded(widths[i], i > 0))
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

func (c Cell) padded(width int, right bool) string {
	pad := strings.Repeat(" ", width-utf8.RuneCountInString(c.Text))
	text := c.Text
	if c.Paint != nil {
		text = c.Paint(text)
	}
	if right {
		return pad + text
	}
	return text + pad
}
