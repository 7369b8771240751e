package load

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Sizes of the picture, in pixels. Each mode has one panel.
const (
	panelWidth, panelHeight             = 640, 360
	marginLeft, marginRight, marginTop  = 80, 90, 46
	marginBottom                        = 54
	plotWidth, plotHeight               = panelWidth - marginLeft - marginRight, panelHeight - marginTop - marginBottom
	widthPerLetter, ticksOnX, minDecade = 7, 5, 1
)

// curve is one quantile as a function of the load.
type curve struct {
	name, color string
	of          func(*Waits) float64
}

func curves() []curve {
	return []curve{
		{"p50", "#1b7837", func(w *Waits) float64 { return w.P50 }},
		{"p90", "#2166ac", func(w *Waits) float64 { return w.P90 }},
		{"p99", "#b35806", func(w *Waits) float64 { return w.P99 }},
		{"p99.9", "#b2182b", func(w *Waits) float64 { return w.P999 }},
		{"max", "#666666", func(w *Waits) float64 { return w.Max }},
	}
}

// SVG draws the waits as functions of the load, one panel for each mode. Each rate is a
// point; without a given rate, the point is at the rate that was reached.
func (r *Report) SVG() []byte {
	var modes []Mode
	for i := range r.Points {
		if m := r.Points[i].Mode; !slices.Contains(modes, m) {
			modes = append(modes, m)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12">`+"\n",
		panelWidth, panelHeight*max(1, len(modes)))
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, m := range modes {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*panelHeight)
		r.panel(&b, m)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// load returns the x value of a point.
func (p *Point) load() float64 {
	if p.Rate != nil {
		return *p.Rate
	}
	return p.ChecksPerSecond
}

func (r *Report) panel(b *strings.Builder, m Mode) {
	var points []*Point
	most, low, high := 0.0, math.Inf(1), 0.0
	for i := range r.Points {
		p := &r.Points[i]
		if p.Mode != m {
			continue
		}
		points = append(points, p)
		most = max(most, p.load())
		for _, c := range curves() {
			low, high = min(low, max(c.of(&p.Waits), 1)), max(high, c.of(&p.Waits), 1)
		}
	}
	slices.SortStableFunc(points, func(p, q *Point) int { return cmp.Compare(p.load(), q.load()) })
	// The y axis has whole decades.
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	to = max(to, from+minDecade)
	x := func(load float64) float64 { return marginLeft + load/max(most, 1)*plotWidth }
	y := func(us float64) float64 {
		return marginTop + plotHeight*(1-(math.Log10(max(us, 1))-from)/(to-from))
	}
	title := fmt.Sprintf("%s, %d clients, %d in a message: waits over load", m, points[0].Clients, points[0].Batch)
	fmt.Fprintf(b, `<text x="%d" y="22" font-size="14">%s</text>`+"\n", marginLeft, html.EscapeString(title))
	for e := from; e <= to; e++ {
		at := y(math.Pow(10, e))
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>`, marginLeft, at, marginLeft+plotWidth,
			at)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", marginLeft-6, at+4, unitOf(math.Pow(10, e)))
	}
	for i := range ticksOnX + 1 {
		load := most * float64(i) / ticksOnX
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(load), marginTop+plotHeight+18,
			short(load))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">checks a second</text>`+"\n", marginLeft+plotWidth/2,
		marginTop+plotHeight+40)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#888888"/>`+"\n", marginLeft, marginTop,
		plotWidth, plotHeight)
	for i, c := range curves() {
		c.draw(b, points, x, y)
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", marginLeft+plotWidth+widthPerLetter, marginTop+14+18*i,
			c.color, c.name)
	}
}

// draw draws one curve and its points, with their values as titles.
func (c *curve) draw(b *strings.Builder, points []*Point, x, y func(float64) float64) {
	line := make([]string, len(points))
	for i, p := range points {
		line[i] = fmt.Sprintf("%.1f,%.1f", x(p.load()), y(c.of(&p.Waits)))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(line, " "),
		c.color)
	for _, p := range points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s at %s/s: %.4g µs</title></circle>`+"\n",
			x(p.load()), y(c.of(&p.Waits)), c.color, c.name, short(p.load()), c.of(&p.Waits))
	}
}

// unitOf formats a power of ten of microseconds.
func unitOf(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%g s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%g ms", us/1e3)
	}
	return fmt.Sprintf("%g µs", us)
}

// short formats a number of checks.
func short(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.3gM", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.3gk", n/1e3)
	}
	return fmt.Sprintf("%.3g", n)
}
