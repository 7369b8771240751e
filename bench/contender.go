package bench

import (
	"fmt"
	"regexp"
	"time"
)

// The limit of every contender, as far as it has one: so many units in a
// window so long that no test sees it end, and so slow that none sees a unit
// come back.
const (
	Limit  = 1_000_000
	Window = 365 * 24 * time.Hour
)

// Check asks for one unit of key n. It is for one goroutine.
type Check func(n int) (allowed bool, err error)

// Limiter is what is measured.
type Limiter interface {
	// Worker returns the checks of one goroutine, which makes its keys by the
	// joiner, if the limiter wants them in one piece.
	Worker(j *Joiner) Check
	// Exhaust takes all units of key n, which is new.
	Exhaust(n int) error
	// Left returns how many units of key n are left, and whether the limiter
	// holds the key at all.
	Left(n int) (units int, held bool, err error)
	// Close stops whatever the limiter runs in the background.
	Close() error
}

// Contender is one way to limit rates.
type Contender struct {
	// Name is what it is called in results, such as "weir/gcra".
	Name string
	// What says how it is set up, in a line.
	What string
	// Free tells that a check must not allocate.
	Free bool
	// Floor tells that it decides nothing: no limiter can be faster. Its keys,
	// if it has any, are never exhausted.
	Floor bool
	// Keyless tells that it holds no keys.
	Keyless bool
	// New returns a limiter for the keys, with no key in it.
	New func(k *Keys) (Limiter, error)
}

// Contenders returns all contenders, in the order of the documentation.
func Contenders() []Contender {
	var all []Contender
	all = append(all, floors()...)
	all = append(all, rivals()...)
	all = append(all, tables()...)
	all = append(all, nodes()...)
	return all
}

// Select returns the contenders whose name matches a regular expression.
func Select(pattern string) ([]Contender, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("the pattern of contenders: %w", err)
	}
	var out []Contender
	for _, c := range Contenders() {
		if re.MatchString(c.Name) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no contender matches %q; `compare list` lists them", pattern)
	}
	return out, nil
}

// Find returns the contender with a name.
func Find(name string) (Contender, error) {
	for _, c := range Contenders() {
		if c.Name == name {
			return c, nil
		}
	}
	return Contender{}, fmt.Errorf("there is no contender %q; `compare list` lists them", name)
}
