package limitertest

// RaceEnabled reports whether the race detector runs, for the tests from outside.
const RaceEnabled = raceEnabled
