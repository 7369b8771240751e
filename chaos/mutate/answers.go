package main

// ofAnswers returns the protections of answers that are used again, of full counts, and of calls that
// were only opened.
func ofAnswers() []mutation {
	const public = "./transport"
	return []mutation{
		{name: "an error leaves no earlier answer", pkg: ".", test: "^TestAnErrorLeavesNoEarlierAnswer$", edits: []edit{
			{"limiter/decision.go", "	d.Clear()\n	d.Allowed = false\n", ""},
		}},
		{name: "newcomers leave no share", pkg: "./internal/cluster", test: "^TestNewcomersLeaveNoShare$", edits: []edit{
			{"internal/cluster/share.go", "(began == nil || began.lost || t.Now-began.at >= rejoinFor)", "true"},
		}},
		{name: "an error of a client leaves no earlier answer", pkg: "./client", test: "^TestAnErrorLeavesNoEarlierAnswer$",
			edits: []edit{
				{"client/check.go", "		d.Refuse()\n", ""},
			}},
		{name: "a node that was let go does not rise", pkg: "./client", test: "^TestANodeThatWasLetGoDoesNotRise$",
			edits: []edit{
				{"client/node.go", "	if ctx.Err() != nil {\n		return false\n	}\n	n.condition", "	n.condition"},
			}},
		{name: "what no message carries is not asked", pkg: "./client", test: "^TestFieldsThatAreNotSent$", edits: []edit{
			{"client/batch.go", "	if r.Tenant != \"\" || ", "	if false && r.Tenant != \"\" || "},
		}},
		{name: "nothing comes back from a full count", pkg: "./limiter/arith", test: "^TestNothingComesBackFromAFullCount$",
			edits: []edit{
				{"limiter/arith/state.go", "bool { return count == l.maxUnits() }", "bool { return false }"},
			}},
		{name: "nothing comes back from a full count in Redis", pkg: "./redisstore",
			test: "^TestNothingComesBackFromAFullCount$", edits: []edit{
				{"redisstore/lua/back.lua", "  return count == (s.p.most or MOST)\n", "  return false\n"},
			}},
		{name: "a call that was only opened takes room", pkg: public, test: "^TestOpenCallsOfAStranger$", edits: []edit{
			{"internal/listen/unsent.go", "		weight = openWeight\n", "		weight = 0\n"},
		}},
		{name: "a stream takes room until it ends", pkg: "./internal/listen", test: "^TestOpenCallsTakeRoom$", edits: []edit{
			{"internal/listen/unsent.go", "	if !s.last || s.out.begun > 0 ||", "	if s.out.begun > 0 ||"},
		}},
		{name: "a watch takes room until it ends", pkg: "./internal/listen", test: "^TestOpenCallsTakeRoom$", edits: []edit{
			{"internal/listen/unsent.go", "	if !s.last || s.out.begun > 0 ||", "	if !s.last ||"},
		}},
		{name: "header fields take room", pkg: "./internal/listen", test: "^TestOpenCallsTakeRoom$", edits: []edit{
			{"internal/listen/unsent.go", "	if s.headers > fewHeaders {\n", "	if s.headers < 0 {\n"},
		}},
	}
}
