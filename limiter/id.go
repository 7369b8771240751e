package limiter

import "time"

// Bounds of how long an id is remembered.
const (
	// DefaultIDTTL is used if neither rule nor request say it.
	DefaultIDTTL = time.Minute
	// MinIDTTL and MaxIDTTL bound both.
	MinIDTTL = time.Millisecond
	MaxIDTTL = 24 * time.Hour
)
