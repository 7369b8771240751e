package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// figure is a number and its unit.
type figure struct {
	value float64
	unit  string
}

// writeLine writes a line in the form of Go benchmarks.
func writeLine(w io.Writer, benchmark, who string, n int, figures []figure) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Benchmark%s/%s-%d\t%d", benchmark, who, runtime.GOMAXPROCS(0), n)
	for _, f := range figures {
		fmt.Fprintf(&b, "\t%s %s", strconv.FormatFloat(f.value, 'f', 2, 64), f.unit)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// summary gathers lines and tells least, median and most of each figure. The
// zero value is empty.
type summary struct {
	names []string
	units []string
	seen  map[string]map[string][]float64 // by name and unit
}

// add takes a line that writeLine wrote.
func (s *summary) add(line string) error {
	fields := strings.Fields(line)
	if len(fields) < 4 || len(fields)%2 != 0 {
		return fmt.Errorf("%q is no line of a benchmark", line)
	}
	name := strings.TrimPrefix(fields[0], "Benchmark")
	if s.seen == nil {
		s.seen = make(map[string]map[string][]float64)
	}
	if s.seen[name] == nil {
		s.seen[name] = make(map[string][]float64)
		s.names = append(s.names, name)
	}
	for i := 2; i < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("%q is no line of a benchmark: %w", line, err)
		}
		unit := fields[i+1]
		if !slices.Contains(s.units, unit) {
			s.units = append(s.units, unit)
		}
		s.seen[name][unit] = append(s.seen[name][unit], v)
	}
	return nil
}

// print writes a table of least, median and most, by name.
func (s *summary) print(w io.Writer) error {
	slices.Sort(s.names)
	var b strings.Builder
	b.WriteString("least / median / most\t" + strings.Join(s.units, "\t") + "\t\n")
	for _, name := range s.names {
		b.WriteString(name + "\t")
		for _, u := range s.units {
			v := slices.Sorted(slices.Values(s.seen[name][u]))
			if len(v) > 0 {
				b.WriteString(short(v[0]) + " / " + short(median(v)) + " / " + short(v[len(v)-1]))
			}
			b.WriteByte('\t')
		}
		b.WriteByte('\n')
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := io.WriteString(t, b.String()); err != nil {
		return err
	}
	return t.Flush()
}

// median returns the middle of sorted values.
func median(v []float64) float64 {
	half := len(v) / 2
	if len(v)%2 == 0 {
		return (v[half-1] + v[half]) / 2
	}
	return v[half]
}

// short spells a number with three or more digits.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}
