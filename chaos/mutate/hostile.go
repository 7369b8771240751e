package main

// ofHostile are the protections from a member that turned hostile.
func ofHostile() []mutation {
	const members, links = "./internal/cluster/members", "./internal/peerlink"
	return []mutation{
		{name: "a name counts that was met, or that more than half of the others know", pkg: members,
			test: "^TestInventedNamesDoNotCount$", edits: []edit{
				{"internal/cluster/members/proven.go", "return a != nil && (a.met || a.live || c.outvotes(name, a.told()))",
					"return a != nil"},
			}},
		{name: "who was never met is no witness", pkg: members, test: "^TestWhoIsNotMetIsNoWitness$", edits: []edit{
			{"internal/cluster/members/proven.go", "if a.live && a.met && o", "if a.live && o"},
		}},
		{name: "who is in the view by others' word alone goes with it", pkg: members, test: "^TestWhoIsNotMetIsNoWitness$",
			edits: []edit{
				{"internal/cluster/members/registry.go", "next.met = a.met || !a.live && len(a.told()) == 0", "next.met = true"},
			}},
		{name: "what a relay says of others is not heard", pkg: members, test: "^TestInventedNamesDoNotCount$", edits: []edit{
			{"internal/cluster/members/registry.go", "c.teller(from, via, all), 0\n", "c.teller(from, via, all), maxNames\n"},
		}},
		{name: "names by one member's word have a bound", pkg: members, test: "^TestNamesHaveABound$", edits: []edit{
			{"internal/cluster/members/registry.go", "if room--; room < 0 {", "if room < 0 {"},
		}},
		{name: "one member's word that is told on is one word", pkg: members, test: "^TestWhoStartsDoesNotTellOnAnInvention$",
			edits: []edit{
				{"internal/cluster/members/proven.go", "if !t.any(shared) {", "if len(t.path) >= 0 || !t.any(shared) {"},
			}},
		{name: "a word of before a restart counts", pkg: members, test: "^TestTheDeadOutliveRestarts$", edits: []edit{
			{"internal/cluster/members/proven.go", "|| t.has(name) ||", "|| t.has(name) || t.has(self) ||"},
		}},
		{name: "of a word that goes round all tellers are named", pkg: members,
			test: "^TestNobodyProvesAnInventionByTellingItOn$", edits: []edit{
				{"internal/cluster/members/proven.go", "if o != self && len(path) < maxPath {",
					"if o != self && len(path) < 1 {"},
			}},
		{name: "who is in the view by others' word is told on as that", pkg: members,
			test: "^TestNobodyProvesAnInventionByTellingItOn$", edits: []edit{
				{"internal/cluster/members/proven.go", "	case a.met:\n		return nil\n", "	case a.met || a.live:\n		return nil\n"},
			}},
		{name: "a member has one name", pkg: links, test: "^TestAMemberHasOneName$", edits: []edit{
			{"internal/peerlink/session.go", "k.Instance == s.other && k.Name != s.name", "k.Instance == 0"},
		}},
		{name: "who gives a handshake up does not judge the certificate", pkg: links, test: "^TestTLSGivenUp$",
			edits: []edit{
				{"internal/peerlink/tls.go", "without a reason: it may have waited too long",
					"since it does not accept this certificate"},
			}},
		{name: "invented names end with their teller", pkg: members, test: "^TestInventionsEndWithTheirTeller$",
			edits: []edit{
				{"internal/cluster/members/expelled.go", "		c.unsay(w.Name)\n", ""},
				{"internal/cluster/members/proven.go", " || t.any(expelled.has) {", " {"},
			}},
		{name: "who is gone by an expelled member's word counts again", pkg: members,
			test: "^TestWhoIsSaidToBeGoneCountsAgain$", edits: []edit{
				{"internal/cluster/members/proven.go", "				a.gone = a.gone && (a.instance", "				_ = (a.instance"},
			}},
		{name: "what a relay says of an end is its word too", pkg: members, test: "^TestWhoIsSaidToBeGoneCountsAgain$",
			edits: []edit{
				{"internal/cluster/members/proven.go", "		t.path = []string{relay}\n", "		_ = relay\n"},
			}},
		{name: "nobody's word ends nobody", pkg: members, test: "^TestWhoIsSaidToBeGoneCountsAgain$", edits: []edit{
			{"internal/cluster/members/registry.go", "(by.name == \"\" || ", "("},
		}},
		{name: "an expelled member's word of an end is not told on", pkg: members,
			test: "^TestWhoIsSaidToBeGoneCountsAgain$", edits: []edit{
				{"internal/cluster/members/registry.go", "c.expelled.void(k.Path) || ", ""},
			}},
		{name: "who tells on an end says by whose word", pkg: members, test: "^TestWordsOfAnEndAreToldOnAsSuch$",
			edits: []edit{
				{"internal/cluster/members/proven.go", "	case k.Gone:\n		return a.leftBy(k.Instance)",
					"	case k.Gone:\n		return words(nil)"},
			}},
		{name: "a node that is expelled is alone and not ready", pkg: members, test: "^TestExpelledNodeIsNotReady$",
			edits: []edit{
				{"internal/cluster/members/membership.go", "m.whoExpels(); m.expeller != \"\" {",
					"m.whoExpels(); m.expeller == \"?\" {"},
			}},
		{name: "one member's word does not expel a node that hears it", pkg: members,
			test: "^TestExpelledNodeIsNotReady$", edits: []edit{
				{"internal/cluster/members/ready.go", "	if len(list) < n {\n		return \"\"", "	if len(list) > n {\n		return \"\""},
			}},
		{name: "who is expelled does not count", pkg: members, test: "^TestExpelled$", edits: []edit{
			{"internal/cluster/members/expelled.go", "return ok && !e.Back", "return ok && e.Name == \"\""},
		}},
		{name: "an expulsion that an expelled member took back is in force again", pkg: members,
			test: "^TestOperatorsWordsReturn$", edits: []edit{
				{"internal/cluster/members/expelled.go", "				c.expelled[name] = own\n", ""},
			}},
		{name: "expulsions by an expelled member end", pkg: members, test: "^TestWordsOfTheExpelled$", edits: []edit{
			{"internal/cluster/members/expelled.go", "return slices.ContainsFunc(path, x.has)", "return false"},
		}},
		{name: "nobody lets itself in again", pkg: members, test: "^TestWordsOfTheExpelled$", edits: []edit{
			{"internal/cluster/members/expelled.go", "slices.Contains(e.Path, e.Name), c.expelled.void(e.Path):",
				"c.expelled.void(nil):"},
		}},
		{name: "one member's word fills a part of the list", pkg: members, test: "^TestExpelledAreBounded$", edits: []edit{
			{"internal/cluster/members/expelled.go", "	if by >= maxExpelledBy {", "	if by < 0 {"},
		}},
		{name: "the link to an expelled member ends", pkg: links, test: "^TestExpelledMemberHasNoLink$", edits: []edit{
			{"internal/peerlink/session.go", "	if c.expelled(s.name) {", "	if c.expelled(\"?\") {"},
		}},
		{name: "links end with the authority of their certificates", pkg: links, test: "^TestReplacedAuthorityEndsLinks$",
			edits: []edit{
				{"internal/peerlink/session.go",
					"		s.end(fmt.Errorf(\"its certificate is not accepted any more: %w\", err), true)\n", ""},
			}},
	}
}
