package limiter

// Bounds of holds.
const (
	// MinHold and MaxHold bound how long a hold lasts.
	MinHold = MinIDTTL
	MaxHold = MaxIDTTL
	// MaxHoldEntries bounds the entries of the holds of one key. A hold has one for each limit
	// that it was charged to, and as many again for each time that its estimate was raised.
	MaxHoldEntries = 4096
	// MaxHoldParts is the most charges of one hold: the first one, and one for each time that
	// its estimate was raised.
	MaxHoldParts = 64
)

// holdsName is a name that no other limit may have, since holds lie beside the counters of a key.
const holdsName = "\x00holds"
