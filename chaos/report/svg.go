package report

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/weirlimit/weir/chaos/history"
)

const (
	width, height = 900, 260
	left, right   = 50, 10
	top, bottom   = 50, 40
	columns       = 120
)

// series are what is counted, in the order in which they are stacked.
func series() []struct{ name, color string } {
	return []struct{ name, color string }{
		{"allowed", "#2a7f62"}, {"denied", "#b9c2c9"}, {"by policy", "#e08e1b"}, {"unknown", "#c0392b"},
		{"refused", "#7f5a8a"},
	}
}

func seriesOf(o *history.Op) int {
	switch {
	case o.Outcome == history.Unknown, o.Outcome == history.Error:
		return 3
	case o.Outcome == history.Refused:
		return 4
	case o.ByPolicy():
		return 2
	case o.Outcome == history.Allowed:
		return 0
	}
	return 1
}

// draw draws one trial: what became of checks over time, and when what was
// broken.
func draw(to io.Writer, r *history.Result) error {
	p := &printer{to: to}
	p.f(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width,
		height)
	p.f(`<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	end := max(r.End, 1)
	x := func(m history.Micros) float64 {
		return left + float64(width-left-right)*float64(min(m, end))/float64(end)
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		band(p, x(f.At), x(f.Until), "#f6d5d5")
		band(p, x(f.Until), x(max(f.Settled, f.Until)), "#fdf3d6")
		p.f(`<text x="%.1f" y="%d">%s</text>`+"\n", x(f.At)+2, top-6-13*(i%3), html.EscapeString(f.What))
	}
	for _, s := range r.Stalls {
		p.f(`<rect x="%.1f" y="%d" width="%.1f" height="6" fill="black"/>`+"\n", x(s.From), height-bottom,
			max(1, x(s.Until)-x(s.From)))
	}
	for _, s := range r.Late {
		p.f(`<rect x="%.1f" y="%d" width="%.1f" height="4" fill="#777"/>`+"\n", x(s.From), height-bottom+8,
			max(1, x(s.Until)-x(s.From)))
	}
	bars(p, r)
	for i := range 6 {
		at := end * history.Micros(i) / 5
		p.f(`<text x="%.1f" y="%d" text-anchor="middle">%.1f s</text>`+"\n", x(at), height-bottom+20, at.Duration().Seconds())
	}
	for i, s := range series() {
		p.f(`<rect x="%d" y="%d" width="10" height="10" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			left+90*i, height-14, s.color, left+90*i+14, height-5, s.name)
	}
	p.f("</svg>\n")
	return p.err
}

func band(p *printer, from, until float64, color string) {
	p.f(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", from, top, max(1, until-from),
		height-top-bottom, color)
}

// bars are the checks that were answered in each span of time, stacked.
func bars(p *printer, r *history.Result) {
	counts := make([][]int, columns)
	most := 1
	for i := range counts {
		counts[i] = make([]int, len(series()))
	}
	for i := range r.Ops {
		o := &r.Ops[i]
		c := min(columns-1, int(o.Return*columns/max(r.End, 1)))
		counts[max(0, c)][seriesOf(o)]++
	}
	for _, c := range counts {
		sum := 0
		for _, n := range c {
			sum += n
		}
		most = max(most, sum)
	}
	const wide = float64(width-left-right) / columns
	shapes := make([]strings.Builder, len(series()))
	for i, c := range counts {
		y := float64(height - bottom)
		for j, n := range c {
			h := float64(height-top-bottom) * float64(n) / float64(most)
			y -= h
			if n > 0 {
				fmt.Fprintf(&shapes[j], "M%.1f %.1fh%.1fv%.1fh-%.1fz", left+float64(i)*wide, y, wide*0.9, h, wide*0.9)
			}
		}
	}
	for j, s := range series() {
		p.f(`<path fill="%s" d="%s"/>`+"\n", s.color, shapes[j].String())
	}
	perSecond := float64(most) * columns / max(r.End, 1).Duration().Seconds()
	for _, part := range slices.Backward([]float64{0, 0.5, 1}) {
		p.f(`<text x="%d" y="%.1f" text-anchor="end">%.0f/s</text>`+"\n", left-4,
			float64(height-bottom)-part*float64(height-top-bottom)+4, part*perSecond)
	}
}
