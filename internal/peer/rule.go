package peer

// Limit is the definition of a limit, see limiter.Spec.
type Limit struct {
	Name                                              string
	Algorithm, Align, Coverage, Rounding, Drip, Count uint8
	Limit, Burst, Ceiling, DripUnits                  int64
	Window, Block                                     int64 // microseconds
	SubWindows                                        int32
	Weight                                            int32 // thousandths
	HasWeight                                         bool
	Calendar, AnchorDay, WeekStart                    uint8
	At                                                int32 // minutes of the day
	Zone                                              string
}

// Rule names a rule, and also defines it if Defined is set.
type Rule struct {
	// ID is a hash of Name and of all fields after Onward.
	ID      uint64
	Name    string
	Defined bool
	// Choice is the time zone, the plan or the number that the request chose for the rule's
	// limits; empty for the rule's own. ID is that of the variant so chosen.
	Choice string
	// UpTo is how many percent of each limit the request may use, 0 for all. ID is that of the rule with these ceilings.
	UpTo uint8
	// Onward means that a denial by the rule is no answer yet.
	Onward bool

	Shadow        bool
	OnUnreachable uint8
	Replication   uint8
	Limits        []Limit
}
