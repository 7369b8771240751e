package limiter

// Observer is a set of functions that learn what a node does. A function that is nil is not
// called, so an observer sets those that it needs. They are called from many goroutines, and
// those of decisions on the path of every check: they must be quick and must not keep their
// arguments. Package metrics has an observer for Prometheus.
type Observer struct {
	// Checked is called for each decision, peeks included, with the rule that decided (see
	// [Decision].Rule), or an empty string if none matched. n is above 1 when consecutive decisions of a
	// batch are equal in all other arguments.
	Checked func(n int, rule string, source Source, allowed, shadowDenied bool)
	// Refused is called with the error of each request that could not be decided.
	Refused func(err error)
	// Repeated is called after each decision that was remembered by the id of its request,
	// so that nothing was charged. rule is the one that decided.
	Repeated func(rule string)
	// Shadowed is called after each decision, once for each rule or quota in shadow that
	// counted the request. denied reports that it would have denied it.
	Shadowed func(rule string, denied bool)
	// Overridden is called for each decision, peeks included, that an operator's override took part in, with the name of
	// the rule that is overridden, or, if another one denied, of that.
	Overridden func(rule string, denied bool)
	// Lent is called in place of Checked for each lease that a client asked this node for ([Request].Lent), with the rule
	// whose units it is about. denied reports that it was not granted.
	Lent func(rule string, denied bool)
	// Unzoned is called for each decision of a rule that has its time zone from an
	// attribute of the request ("zone: attr:tz"), if the attribute names none, so that the
	// rule's default zone was used: missing reports that the request lacks it. Of several such
	// rules it is called for the first.
	Unzoned func(rule string, missing bool)
	// Unlisted is called for each decision of a rule that takes the number of a limit from the
	// request, if the request chooses none, so that the number of "else" was used: missing
	// reports that it lacks what chooses, else it is not in the table, or not a number. Of
	// several such rules, and those of Unzoned, it is called for the first.
	Unlisted func(rule string, missing bool)
	// Settled is called after each settlement, cancellation and extension that was decided at
	// this node, also one that changed nothing or was refused, with what became of it. rule is
	// that of the first key. extended reports that it was an extension.
	Settled func(rule string, extended bool, state AmendState)
	// RulesSet is called with the hash of the rules in force: with err nil when they
	// have come into force, else when a file was refused, with the reason.
	RulesSet func(hash uint64, err error)
	// RulesNamed is called after RulesSet with the names of all rules and quotas that have come
	// into force. Checks that are under way may still be decided by rules of before.
	RulesNamed func(names []string)
	// Panicked is called after a panic was recovered from, which is a defect of this module.
	// place is "cluster", "link", "gossip", or that of a backend, such as "redis".
	Panicked func(place string)
}
