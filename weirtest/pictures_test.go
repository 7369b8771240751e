package weirtest_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/weirtest"
)

var rewrite = flag.Bool("rewrite", false, "write the pictures of docs/algorithms.md anew")

// row is a limit of 5/minute in a picture.
type row struct{ name, options string }

func pictured() []row {
	return []row{
		{"sliding_counter", "algorithm: sliding_counter"},
		{"rounding: floor", "algorithm: sliding_counter, rounding: floor"},
		{"fixed_window", "algorithm: fixed_window"},
		{"sliding_log", "algorithm: sliding_log"},
		{"sliding_window", "algorithm: sliding_window"},
		{"gcra, buckets", "algorithm: gcra"},
	}
}

// demand is when one key asks, from the beginning of a minute on.
type demand struct {
	file, title string
	at          []time.Duration
}

// burst returns five instants, a second apart, from the given one on.
func burst(from time.Duration) (out []time.Duration) {
	for i := range 5 {
		out = append(out, from+time.Duration(i)*time.Second)
	}
	return out
}

func every(step, end time.Duration) (out []time.Duration) {
	for at := time.Second; at < end; at += step {
		out = append(out, at)
	}
	return out
}

func demands() []demand {
	const min, s = time.Minute, time.Second
	return []demand{
		{"edge", "five just before the end of a minute, and five just after", append(burst(55*s), burst(min)...)},
		{"quiet", "five at the beginning of a minute, and five in each of the next two",
			append(append(burst(0), burst(min+s)...), burst(2*min+30*s)...)},
		{"even", "one each 12 s, which is the rate of the limit", every(12*s, 4*min)},
		{"above", "one each 8 s, which is 1.5 times the rate", every(8*s, 4*min)},
	}
}

// granted returns which requests of a demand a limit admits.
func granted(t *testing.T, options string, at []time.Duration) []bool {
	t.Helper()
	node := weirtest.New(t, "rules: [{name: a, key: [rule], limits: [{limit: 5, window: 1m, "+options+"}]}]")
	out, now := make([]bool, len(at)), time.Duration(0)
	for i, next := range at {
		node.Advance(next - now)
		now = next
		d, err := node.Check(t.Context(), weir.Request{})
		if err != nil {
			t.Fatal(err)
		}
		out[i] = d.Allowed
	}
	return out
}

// most returns how many were admitted, and how many within any minute.
func most(at []time.Duration, ok []bool) (all, inMinute int) {
	for i, from := range at {
		n := 0
		for j := i; j < len(at) && at[j] < from+time.Minute; j++ {
			if ok[j] {
				n++
			}
		}
		if ok[i] {
			all++
		}
		inMinute = max(inMinute, n)
	}
	return all, inMinute
}

// draw returns the picture of a demand: a row for each limit, with a bar for each request, tall where it is admitted.
func draw(t *testing.T, d demand) []byte {
	t.Helper()
	const left, right, top, high, minute = 120, 190, 44, 26, 120
	rows := pictured()
	minutes := 4
	width, height := left+minutes*minute+right, top+high*len(rows)+24
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	fmt.Fprintf(&b, `<text x="8" y="18">5/minute: %s</text>`+"\n", d.title)
	fmt.Fprintf(&b, `<text x="%d" y="34" fill="#555">admitted, most in any minute</text>`+"\n", left+minutes*minute+8)
	for m := range minutes + 1 {
		x := left + m*minute
		fmt.Fprintf(&b, `<path d="M%d %dV%d" stroke="#bbb"/>`+"\n", x, top-4, top+high*len(rows))
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="#555">%d:00</text>`+"\n", x, height-8, m)
	}
	for i, r := range rows {
		base := top + high*(i+1) - 4
		ok := granted(t, r.options, d.at)
		all, inMinute := most(d.at, ok)
		fmt.Fprintf(&b, `<text x="8" y="%d">%s</text><text x="%d" y="%d">%d of %d, %d</text>`+"\n", base-4, r.name,
			left+minutes*minute+8, base-4, all, len(d.at), inMinute)
		for j, at := range d.at {
			x := left + int(at.Seconds())*minute/60
			color, up := "#b2182b", 6
			if ok[j] {
				color, up = "#1b7837", 18
			}
			fmt.Fprintf(&b, `<path d="M%d %dv-%d" stroke="%s" stroke-width="1.5"/>`+"\n", x, base, up, color)
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// The pictures of docs/algorithms.md are what the algorithms do, and the page has them all.
func TestPictures(t *testing.T) {
	page, err := os.ReadFile("../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range demands() {
		name := "algorithms-" + d.file + ".svg"
		if !strings.Contains(string(page), "]("+name+")") {
			t.Errorf("docs/algorithms.md does not show %s", name)
		}
		want := draw(t, d)
		if *rewrite {
			if err := os.WriteFile("../docs/"+name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if have, err := os.ReadFile("../docs/" + name); err != nil || !bytes.Equal(have, want) {
			t.Errorf("docs/%s is not what the algorithms do (%v): go test ./weirtest -run TestPictures -rewrite", name, err)
		}
	}
	for _, same := range []string{"token_bucket", "leaky_bucket"} {
		for _, d := range demands() {
			if got, want := fmt.Sprint(granted(t, "algorithm: "+same, d.at)),
				fmt.Sprint(granted(t, "algorithm: gcra", d.at)); got != want {
				t.Errorf("%s, %s: %s, and gcra %s", d.file, same, got, want)
			}
		}
	}
}
