package main

// ofOwners returns those of who may own a partition, and with which state.
func ofOwners() []mutation {
	const replica = "./internal/cluster/replica"
	return []mutation{
		{name: "only the last owner may be missing", pkg: replica, test: "^TestTheLastResortOfClosed$", edits: []edit{
			{"internal/cluster/replica/seek.go", " && !v.Has(owner) && p.node.Peers.Counts(owner)", " && !v.Has(owner)"},
		}},
		{name: "a last resort gives way to a later copy", pkg: replica, test: "^TestALastResortBehindAnotherCopy$",
			edits: []edit{
				{"internal/cluster/replica/claim.go",
					"		case r.kind == peer.LastResort && p.behind(a):\n			p.abandon(t, 0)\n			return\n", ""},
			}},
		{name: "a majority records an epoch", pkg: "./chaos/sim", test: "^TestAMemberOfBothSides$", edits: []edit{
			{"internal/cluster/replica/claim.go", "	if !p.closed || r.kind == peer.Transfer {", "	if r.kind <= peer.Reopen {"},
		}},
		{name: "a takeover that some have recorded goes on", pkg: replica, test: "^TestAGrantedTakeoverGoesOn$",
			edits: []edit{
				{"internal/cluster/replica/claim.go", "a.Role >= peer.Sealed && !r.granted:", "a.Role >= peer.Sealed:"},
			}},
		{name: "who claims is not doubted", pkg: replica, test: "^TestAGrantedTakeoverGoesOn$", edits: []edit{
			{"internal/cluster/replica/claim.go", "		owner = r.epoch(p) // others", "		_ = r.epoch(p) // others"},
		}},
		{name: "an owner that stopped in vain asks its heir", pkg: replica, test: "^TestTheHeirOfAnOwnerThatStoppedInVain$",
			edits: []edit{
				{"internal/cluster/replica/doubt.go", "		p.breakage.yields, p.breakage.urgeAt, p.breakage.urges = true, t.Now, 0\n",
					""},
			}},
		{name: "an heir that is believed again drops a copy", pkg: "./internal/cluster/replica",
			test: "^TestAKeptCopyOutlastsADisprovedOwner$", edits: []edit{
				{"internal/cluster/replica/doubt.go", "	p.dropOutdated(t, p.heir)\n", ""},
			}},
		{name: "receipts of this lineage only", pkg: replica, test: "^TestReceiptsOfAnotherLineage$", edits: []edit{
			{"internal/cluster/replica/owner.go", "	return f.Epoch == o.Lineage() && f.Time >= o.at\n",
				"	return f.Time >= o.at\n"},
		}},
	}
}

// ofClaims returns those of who must grant a claim.
func ofClaims() []mutation {
	const replica = "./internal/cluster/replica"
	return []mutation{
		{name: "a receiver gives its own claim up", pkg: replica, test: "^TestAReceiverGivesItsOwnClaimUp$", edits: []edit{
			{"internal/cluster/replica/handoff.go", "p.pledged().grant > b.Next.Counter", "p.grant > b.Next.Counter"},
		}},
		{name: "a claim that may be recorded is not given up", pkg: replica, test: "^TestAReceiverGivesItsOwnClaimUp$",
			edits: []edit{
				{"internal/cluster/replica/claim.go", "r.kind == peer.Takeover && !r.granted && p.grantTo",
					"r.kind == peer.Takeover && p.grantTo"},
			}},
		{name: "who gives a claim up is bound by what it granted before", pkg: replica,
			test: "^TestAReceiverGivesItsOwnClaimUp$", edits: []edit{
				{"internal/cluster/replica/claim.go", "		return r.before\n", "		return vote{}\n"},
			}},
		{name: "a claim that ended binds nobody", pkg: replica, test: "^TestAReceiverGivesItsOwnClaimUp$", edits: []edit{
			{"internal/cluster/replica/claim.go", "func (p *Replica) giveUp() { p.vote, p.claiming.round = p.pledged(), nil }",
				"func (p *Replica) giveUp() { p.claiming.round = nil }"},
		}},
		{name: "awaited replies are bounded", pkg: replica, test: "^TestTooManyAwaitedRepliesAreCongestion$", edits: []edit{
			{"internal/cluster/replica/withheld.go", "max(len(o.withheld), len(o.awaited)) >= maxWithheld",
				"len(o.withheld) >= maxWithheld"},
		}},
		{name: "a revoked heir refuses what waited", pkg: replica, test: "^TestARevokedHeirRefusesWhatWaited$", edits: []edit{
			{"internal/cluster/replica/copy.go", "			p.answerParked(t, from)\n", ""},
		}},
		{name: "who asked by a relay is answered by it", pkg: "./internal/cluster/mesh",
			test: "^TestWhoHasAskedByARelayIsAnsweredByIt$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "r != nil && !v.Has(via) {", "r != nil && !v.Has(via) && v.Has(via) {"},
			}},
		{name: "a relay that is not in the view gets requests last", pkg: "./internal/cluster/mesh",
			test: "^TestARelayOutOfTheViewIsAskedLast$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "	case asks:\n", "	case asks && r == nil:\n"},
			}},
		{name: "a suspect connection keeps its requests from a relay out of the view", pkg: "./internal/cluster/mesh",
			test: "^TestASuspectConnectionIsBetterThanARelayOutOfTheView$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "l.out.detour(relays.take(true))", "l.out.detour(true)"},
			}},
		{name: "so does one that is up again", pkg: "./internal/cluster/mesh",
			test: "^TestASuspectConnectionIsBetterThanARelayOutOfTheView$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "!relays.take(asks)", "!relays.take(asks && !asks)"},
			}},
		{name: "a silent relay is suspect", pkg: "./internal/cluster/mesh", test: "^TestASilentRelayIsSuspect$",
			edits: []edit{
				{"internal/cluster/mesh/relay.go", "	case since != 0 && now-since >", "	case since < 0 && now-since >"},
			}},
		{name: "a relay that was heard comes first", pkg: "./internal/cluster/mesh",
			test: "^TestARelayThatWasHeardComesFirst$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "now-l.heardAt < freshFor", "now-l.heardAt < limiter.Day"},
			}},
		{name: "a relay that is late is better than none", pkg: "./internal/cluster/mesh",
			test: "^TestARelayThatIsLateIsBetterThanNone$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "!out.take(false) && late != nil", "!out.take(false) && late == l"},
			}},
		{name: "a relay that is silent for longer is none", pkg: "./internal/cluster/mesh",
			test: "^TestARelayThatIsLateIsBetterThanNone$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "		case since > silentSince:\n", "		case since > silentSince || since > 0:\n"},
			}},
		{name: "a reply waits for a silent connection", pkg: "./internal/cluster/mesh",
			test: "^TestAReplyWaitsForASilentConnection$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "!(asks && l.line.suspect)", "!(l.line.suspect && (asks || l.line.suspect))"},
			}},
		{name: "a request for a silent connection is lost", pkg: "./internal/cluster/mesh",
			test: "^TestAReplyWaitsForASilentConnection$", edits: []edit{
				{"internal/cluster/mesh/relay.go", "!(asks && l.line.suspect)", "(!asks || l.up.Load())"},
			}},
		{name: "a last resort is granted by all", pkg: replica, test: "^TestALastResortIsGrantedByAll$", edits: []edit{
			{"internal/cluster/replica/claim.go", "granted >= p.grants(t, r) &&", "2*granted > p.n0(t, true) &&"},
		}},
		{name: "a last resort gives way to an heir", pkg: replica, test: "^TestALastResortIsGrantedByAll$", edits: []edit{
			{"internal/cluster/replica/claim.go",
				"		case p.closed && r.replaces(p) && a.Role == peer.Heir && !r.granted:\n			p.abandon(t, 0)\n			return\n", ""},
		}},
		{name: "a transfer is granted by its receiver", pkg: replica, test: "^TestTranscripts$", edits: []edit{
			{"internal/cluster/replica/claim.go", "	if r.kind != peer.Transfer {\n		return true",
				"	if r.kind <= peer.Reopen {\n		return true"},
		}},
		{name: "a transfer is granted by its receiver, closed", pkg: replica, test: "^TestATransferNeedsItsReceiver$",
			edits: []edit{
				{"internal/cluster/replica/claim.go", "granted >= p.grants(t, r) && r.receives() && (",
					"granted >= p.grants(t, r) && ("},
			}},
		{name: "a transfer ends", pkg: replica, test: "^TestATransferEnds$", edits: []edit{
			{"internal/cluster/replica/handoff.go",
				"	return h != nil && h.to == r.owner && !p.own.renew && t.View.Has(r.owner) && t.View.Owner(p.id) == r.owner\n",
				"	return h != nil\n"},
		}},
	}
}
