package term

import "strings"

// Sparkline draws each value as one character, in eighths of the largest. Zero is a
// blank, and any larger value shows at least a line. Negative values count as 0.
func Sparkline(values []int) string {
	const bars = "▁▂▃▄▅▆▇█"
	most := 0
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		if v <= 0 {
			b.WriteByte(' ')
			continue
		}
		// Rounded up, so that only the largest is a full bar. Floating point cannot
		// overflow here.
		level := int(float64(v)*8/float64(most)+0.999999) - 1
		level = min(max(level, 0), 7)
		b.WriteString(bars[level*3 : level*3+3])
	}
	return b.String()
}
