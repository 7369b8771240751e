package client

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// errDefect is wrapped if a goroutine of the client panics, be it by a defect here or in
// what Config.Dial was given. It ends what the goroutine was doing, and not the program
// that embeds the client.
var errDefect = errors.New("the client has panicked")

// catch ends a panic and calls then with an error that has its value and place. Defer it
// directly: it has no effect otherwise.
func catch(then func(error)) {
	if v := recover(); v != nil {
		then(fmt.Errorf("%w at %s: %v", errDefect, placeOfPanic(), v))
	}
}

// placeOfPanic returns the function that panicked, with its file and line.
func placeOfPanic() string {
	pc := make([]uintptr, 32)
	frames := runtime.CallersFrames(pc[:runtime.Callers(1, pc)])
	panicked := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panicked && !inRuntime {
			return fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line)
		}
		panicked = panicked || f.Function == "runtime.gopanic"
		if !more {
			return "an unknown place"
		}
	}
}
