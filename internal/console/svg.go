package console

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Charts are drawn here, with classes in place of colours: the style sheet has those, for light and dark.

// spark draws a line without axes, for a row of a table. Screen readers skip it: the number stands beside it.
func spark(values []float64, class string) template.HTML {
	const wide, high = 120.0, 22.0
	top := 0.0
	for _, v := range values {
		top = math.Max(top, v)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark %s" viewBox="0 0 %g %g" preserveAspectRatio="none" aria-hidden="true" `+
		`focusable="false">`, class, wide, high)
	if top > 0 && len(values) > 1 {
		var line points
		for i, v := range values {
			line.add(wide*float64(i)/float64(len(values)-1), high-2-(high-4)*v/top)
		}
		b.WriteString(`<polyline points="` + string(line) + `"/>`)
	} else {
		fmt.Fprintf(&b, `<line x1="0" x2="%g" y1="%g" y2="%g"/>`, wide, high-2, high-2)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers and a constant class
}

// points is the attribute of a line. Charts have hundreds of them, and are drawn each second.
type points []byte

func (p *points) add(x, y float64) {
	out := strconv.AppendFloat(*p, x, 'f', 1, 64)
	out = strconv.AppendFloat(append(out, ','), y, 'f', 1, 64)
	out = append(out, ' ')
	*p = out
}

// band is a layer of a stacked chart, the lowest first.
type band struct {
	class, label string
	values       []float64
}

// chart describes a stacked chart over time.
type chart struct {
	title string
	start time.Time
	step  time.Duration
	bands []band
	marks []event
}

// ticks returns up to five round numbers from 0 to a number that is at least most.
func ticks(most float64) []float64 {
	if most <= 0 {
		return []float64{0, 1}
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10} {
		if step := unit * f; most/step <= 4 {
			out := []float64{}
			for v := 0.0; ; v += step {
				if out = append(out, v); v >= most {
					return out
				}
			}
		}
	}
	return []float64{0, most}
}

// draw draws the chart. Its texts are numbers, times and labels, all escaped.
func (c *chart) draw() template.HTML {
	const wide, high, left, right, top, bottom = 960.0, 260.0, 64.0, 84.0, 18.0, 30.0
	n := len(c.bands[0].values)
	sums, most := make([]float64, n), 0.0
	for _, b := range c.bands {
		for i, v := range b.values {
			sums[i] += v
			most = math.Max(most, sums[i])
		}
	}
	marks := ticks(most)
	most = marks[len(marks)-1]
	x := func(i float64) float64 { return left + (wide-left-right)*i/float64(max(1, n-1)) }
	y := func(v float64) float64 { return high - bottom - (high-top-bottom)*v/most }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s">`, wide, high,
		template.HTMLEscapeString(c.title))
	for _, v := range marks {
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="y" x="%g" y="%.1f">%s</text>`,
			left,
			wide-right, y(v), y(v), left-8, y(v)+4, short(v))
	}
	below := make([]float64, n)
	for _, layer := range c.bands {
		var up, down points
		above := make([]float64, n)
		for i := range n {
			above[i] = below[i] + layer.values[i]
			up.add(x(float64(i)), y(above[i]))
			down.add(x(float64(n-1-i)), y(below[n-1-i]))
		}
		fmt.Fprintf(&b, `<polygon class="%s" points="%s%s"/>`, layer.class, up, down)
		below = above
	}
	c.labels(&b, wide-right+8, y)
	total := time.Duration(n) * c.step
	for _, f := range []float64{0, 0.25, 0.5, 0.75, 1} {
		at := c.start.Add(time.Duration(f * float64(total)))
		anchor := map[float64]string{0: "start", 1: "end"}[f]
		anchor = cmp.Or(anchor, "middle")
		fmt.Fprintf(&b, `<text class="x" text-anchor="%s" x="%.1f" y="%g" data-time="%s">%s</text>`, anchor,
			x(f*float64(n-1)),
			high-10, at.UTC().Format(time.RFC3339), at.UTC().Format("15:04"))
	}
	for _, m := range c.marks {
		at := m.At.Sub(c.start).Seconds() / total.Seconds() * float64(n-1)
		if at < 0 || at > float64(n-1) {
			continue
		}
		fmt.Fprintf(&b, `<g class="mark"><line x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><path d="M%.1f %g l-5 -8 h10 z"/>`+
			`<title>%s UTC: %s</title></g>`, x(at), x(at), top, high-bottom, x(at), top+2, m.At.UTC().Format("15:04:05"),
			template.HTMLEscapeString(m.Text))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers, and texts that are escaped
}

// labels names each layer where it ends, so that no colour alone says what it is.
func (c *chart) labels(b *strings.Builder, x float64, y func(float64) float64) {
	sum, last := 0.0, math.Inf(1)
	for _, layer := range c.bands {
		v := 0.0
		if slices.Max(layer.values) == 0 {
			continue
		}
		for _, at := range layer.values[max(0, len(layer.values)-5):] {
			v = math.Max(v, at)
		}
		mid := math.Min(y(sum+v/2)+4, last-14)
		sum, last = sum+v, mid
		fmt.Fprintf(b, `<text class="label %s" x="%g" y="%.1f">%s</text>`, layer.class, x, mid,
			template.HTMLEscapeString(layer.label))
	}
}

// short writes a number in a few characters.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/1e6), ".0") + " M"
	case v >= 1e4:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v/1e3), ".0") + " k"
	case v == math.Trunc(v):
		return group(uint64(v))
	case v < 0.1:
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// group writes a number with commas.
func group(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// slice is a part of the ring of members.
type slice struct {
	name, state string
	share       float64
}

// ringSVG draws the members as a ring, each with its share to scale.
func ringSVG(parts []slice) template.HTML {
	const mid, out, in = 150.0, 108.0, 78.0
	var b strings.Builder
	b.WriteString(`<svg class="ring" viewBox="0 0 300 300" role="img" ` +
		`aria-label="the shares of the members; the table has them too">`)
	at := 0.0
	for _, p := range parts {
		if p.share <= 0 {
			continue
		}
		gap := 0.012
		a0, a1 := (at+gap/2)*2*math.Pi, (at+p.share-gap/2)*2*math.Pi
		if p.share > 0.999 {
			fmt.Fprintf(&b, `<circle class="part %s" cx="%g" cy="%g" r="%g" fill="none" stroke-width="%g"/>`, p.state, mid, mid,
				(out+in)/2, out-in)
		} else if a1 > a0 {
			large := 0
			if a1-a0 > math.Pi {
				large = 1
			}
			pt := func(a, r float64) (float64, float64) { return mid + r*math.Sin(a), mid - r*math.Cos(a) }
			x0, y0 := pt(a0, out)
			x1, y1 := pt(a1, out)
			x2, y2 := pt(a1, in)
			x3, y3 := pt(a0, in)
			fmt.Fprintf(&b, `<path class="part %s" d="M%.2f %.2f A%g %g 0 %d 1 %.2f %.2f L%.2f %.2f A%g %g 0 %d 0 %.2f %.2f Z">`+
				`<title>%s: %.1f %%</title></path>`, p.state, x0, y0, out, out, large, x1, y1, x2, y2, in, in, large, x3, y3,
				template.HTMLEscapeString(p.name), 100*p.share)
		}
		if p.share > 0.03 {
			a := (at + p.share/2) * 2 * math.Pi
			anchor := "start"
			if math.Sin(a) < 0 {
				anchor = "end"
			}
			fmt.Fprintf(&b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, p.state, mid+(out+8)*math.Sin(a),
				mid+4-(out+8)*math.Cos(a), anchor, template.HTMLEscapeString(clipName(p.name)))
		}
		at += p.share
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers, states of a list, and names that are escaped
}

func clipName(s string) string {
	if r := []rune(s); len(r) > 10 {
		return string(r[:9]) + "…"
	}
	return s
}
