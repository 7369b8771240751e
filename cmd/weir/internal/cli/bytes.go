package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// bytesFlag is a flag with a number of bytes, such as 512MiB.
type bytesFlag int64

// byteUnits returns the units of bytesFlag, the largest first.
func byteUnits() []byteUnit {
	return []byteUnit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

type byteUnit struct {
	name string
	size int64
}

// Type returns the name of the value in help texts.
func (b *bytesFlag) Type() string { return "SIZE" }

// String returns the number in the largest unit that divides it.
func (b *bytesFlag) String() string {
	for _, u := range byteUnits() {
		if n := int64(*b); n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return "0B"
}

// Set parses a whole number above 0, with or without a unit; without one it is in
// bytes.
func (b *bytesFlag) Set(text string) error {
	for _, u := range byteUnits() {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok && u.size > 1 {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/u.size {
			break
		}
		*b = bytesFlag(n * u.size)
		return nil
	}
	return errors.New("give a whole number with a unit, such as 512MiB or 4GiB")
}
