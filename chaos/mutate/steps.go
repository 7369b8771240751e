package main

// ofSteps returns those of single steps of the protocol, each with a test of that step.
func ofSteps() []mutation {
	const replica = "./internal/cluster/replica"
	return []mutation{
		{name: "receipts of this ownership only", pkg: replica, test: "^TestReceiptsOfAnotherLineage$", edits: []edit{
			{"internal/cluster/replica/owner.go", " && f.Time >= o.at\n", "\n"},
		}},
		{name: "a takeover gives way to a granted renewal", pkg: replica, test: "^TestATakeoverGivesWayToARenewal$",
			edits: []edit{
				{"internal/cluster/replica/claim.go", "		case p.supersedes(r, a):", "		case false:"},
			}},
		{name: "grants of members in view", pkg: replica, test: "^TestOnlyMembersInViewGrant$", edits: []edit{
			{"internal/cluster/replica/claim.go", "r.answers[i].Granted && v.Has(r.whom[i]) {", "r.answers[i].Granted {"},
		}},
		{name: "records of members in view", pkg: replica, test: "^TestARecordOfAnInstanceThatIsGone$", edits: []edit{
			{"internal/cluster/replica/claim.go", " && a.Owner == r.epoch(p) && t.View.Has(r.whom[i]) {",
				" && a.Owner == r.epoch(p) {"},
		}},
		{name: "the last resort takes the best copy", pkg: replica, test: "^TestTheLastResortTakesTheBestCopy$",
			edits: []edit{
				{"internal/cluster/replica/seek.go", "at == 0 || c > 0 || c == 0 && a.Seq > seq",
					"at == 0 || c < 0 || c == 0 && a.Seq < seq"},
			}},
		{name: "an heir is of its epoch", pkg: replica, test: "^TestAnHeirIsOfItsEpoch$", edits: []edit{
			{"internal/cluster/replica/learn.go", "	if p.role == peer.Heir && p.epoch.Before(owner) {", "	if false {"},
		}},
		{name: "an heir has what was answered", pkg: replica, test: "^TestAnHeirHasWhatWasAnswered$", edits: []edit{
			{"internal/cluster/replica/copy.go", "	case p.seq < b.Appointed || b.Appointment", "	case b.Appointment"},
		}},
		{name: "a lost part of a snapshot", pkg: replica, test: "^TestWhatIsMissingIsNoticed$", edits: []edit{
			{"internal/cluster/replica/staging.go", "	if b.Base != p.stagedNext {", "	if false {"},
		}},
		{name: "a gap in batches", pkg: replica, test: "^TestWhatIsMissingIsNoticed$", edits: []edit{
			{"internal/cluster/replica/copy.go", " && p.epoch != b.Epoch || p.seq < b.Base {", " && p.epoch != b.Epoch {"},
		}},
		{name: "an heir that is wanted again is asked what it is", pkg: replica,
			test: "^TestAnHeirThatIsWantedAgainIsAskedWhatItIs$", edits: []edit{
				{"internal/cluster/replica/heir.go", "h.to == want && own.revoking:", "h.to == want && own.revoking && p.fresh:"},
			}},
		{name: "a revoked heir ends its takeover", pkg: replica, test: "^TestARevokedHeirEndsItsTakeover$", edits: []edit{
			{"internal/cluster/replica/copy.go", "		if p.claiming.round != nil && p.claiming.round.kind == peer.Takeover {",
				"		if false {"},
		}},
		{name: "a former heir releases nothing", pkg: replica, test: "^TestAFormerHeirsAcknowledgementReleasesNothing$",
			edits: []edit{
				{"internal/cluster/replica/heir.go", "	lapsed := a.Appointment != g.appointment\n", "	lapsed := false\n"},
			}},
		{name: "a revocation ends no later appointment", pkg: replica, test: "^TestALateRevocationEndsNoLaterAppointment$",
			edits: []edit{
				{"internal/cluster/replica/heir.go", " && a.Appointment >= h.appointment {", " {"},
			}},
		{name: "a revocation is the heir's", pkg: replica, test: "^TestALateRevocationEndsNoLaterAppointment$", edits: []edit{
			{"internal/cluster/replica/heir.go", "h != nil && h.to == from && a.App", "h != nil && a.App"},
		}},
		{name: "an acknowledgement is of its epoch", pkg: replica, test: "^TestAnAcknowledgementOfAnEarlierEpoch$",
			edits: []edit{
				{"internal/cluster/replica/heir.go", "	if p.own == nil || a.Epoch != p.epoch {\n", "	if p.own == nil {\n"},
			}},
		{name: "a majority informs a fresh member", pkg: replica, test: "^TestHowManyInformAFreshMember$", edits: []edit{
			{"internal/cluster/replica/seek.go", "	return answered >= min(n/2+1, n-1)\n", "	return answered >= min(2, n-1)\n"},
		}},
		{name: "members in view inform a fresh member", pkg: replica, test: "^TestOnlyMembersInViewInform$", edits: []edit{
			{"internal/cluster/replica/seek.go", "		case !v.Has(w):\n		case r.answers",
				"		case !v.Has(w) && !r.answers[i].has:\n		case r.answers"},
		}},
		{name: "a handover is taken by the heir", pkg: replica, test: "^TestAHandoverIsTakenByTheHeir$", edits: []edit{
			{"internal/cluster/replica/handoff.go", "	case p.role != peer.Heir || p.seq != b.Seq:", "	case false:"},
		}},
		{name: "an owner hands over what is copied", pkg: replica, test: "^TestAnOwnerHandsOverWhatIsCopied$", edits: []edit{
			{"internal/cluster/replica/handoff.go", " || own.heir.acked < p.seq {", " {"},
		}},
		{name: "an owner without its heir answers its share", pkg: replica,
			test: "^TestAnOwnerWithoutItsHeirAnswersItsShare$", edits: []edit{
				{"internal/cluster/replica/owner.go", "share = min(share, capacity(l)/n)", "share = min(share, capacity(l)*n/n)"},
			}},
		{name: "released replies count as answered", pkg: replica, test: "^TestAnOwnerWithoutItsHeirAnswersItsShare$",
			edits: []edit{
				{"internal/cluster/replica/withheld.go", "		if d := o.dirty.find(k.Hash.Hi); d != nil {",
					"		if d := o.dirty.find(k.Hash.Hi); false {"},
			}},
		{name: "what is taken back is copied", pkg: replica, test: "^TestWhatIsTakenBackIsCopied$", edits: []edit{
			{"internal/cluster/replica/withheld.go", "		if k := w.Charge.Key(i); o.holds(k) {",
				"		if k := w.Charge.Key(i); false {"},
		}},
		{name: "copied keys are forgotten", pkg: replica, test: "^TestCopiedKeysAreForgotten$", edits: []edit{
			{"internal/cluster/replica/dirty.go", "return k.last > seq || k.old+k.new > 0", "return true"},
		}},
		{name: "an heir stays until the next is fit", pkg: replica, test: "^TestAnHeirStaysUntilTheNextIsFit$", edits: []edit{
			{"internal/cluster/replica/heir.go", "	case g.unfit:\n		// The", "	case false:\n		// The"},
		}},
		{name: "a fresh copy says so", pkg: replica, test: "^TestAFreshCopySaysSo$", edits: []edit{
			{"internal/cluster/replica/copy.go", " || b.Appointment == 0 && p.unfit(t) {", " {"},
		}},
		{name: "a copy that is not active says so", pkg: replica, test: "^TestACopyThatIsNotActiveSaysSo$", edits: []edit{
			{"internal/cluster/replica/copy.go", " || b.Appointment == 0 && p.unfit(t) {",
				" || b.Appointment == 0 && p.fresh {"},
		}},
		{name: "a joining node counts its seeds", pkg: replica, test: "^TestAJoiningNodeCountsItsSeeds$", edits: []edit{
			{"internal/cluster/replica/replica.go", "		n = max(n, p.node.Seeds)\n", ""},
		}},
		{name: "a new connection repeats what was sent", pkg: replica, test: "^TestANewConnectionRepeatsWhatWasSent$",
			edits: []edit{
				{"internal/cluster/replica/replica.go", "				g.resend()\n", ""},
			}},
		{name: "a later owner ends a claim", pkg: replica, test: "^TestALaterOwnerEndsAClaim$", edits: []edit{
			{"internal/cluster/replica/learn.go", "	if r := p.claiming.round; r != nil && r.takes() && r.base.Before(owner) {",
				"	if false {"},
		}},
		{name: "a giver out of view hears of its receiver", pkg: replica, test: "^TestTranscripts$/^unseen-giver$",
			edits: []edit{
				{"internal/cluster/replica/handoff.go", "	if !t.View.Has(giver) {", "	if false {"},
			}},
		{name: "an heir claims again", pkg: replica, test: "^TestAnHeirClaimsAgain$", edits: []edit{
			{"internal/cluster/replica/claim.go", "		p.answerParked(t, alive)\n		p.seekLater(t)\n",
				"		p.answerParked(t, alive)\n"},
		}},
		{name: "a giver answers what it withheld", pkg: "./internal/cluster", test: "^TestTheGiverAnswers$", edits: []edit{
			{"internal/cluster/decide.go", "role == peer.Owned && q.Changes() && q.Sent && ", "role == peer.Owned && false && "},
		}},
		{name: "a giver answers the reset that it withheld", pkg: "./internal/cluster", test: "^TestTheGiverAnswersAReset$",
			edits: []edit{
				{"internal/cluster/route/request.go", "	return q.Kind == KindReset || ", "	return "},
			}},
		{name: "an owner that the heir names is asked", pkg: "./internal/cluster",
			test: "^TestAnOwnerThatTheHeirNamesIsAsked$", edits: []edit{
				{"internal/cluster/route/call.go", "		if asOwner || r.Owner.Instance != 0 && o.unasked(r.Owner.Instance) {",
					"		if asOwner || r.Owner.Instance == from {"},
			}},
		{name: "a new owner that was asked as heir is asked again", pkg: "./internal/cluster",
			test: "^TestAnOwnerThatWasAskedAsHeirIsAskedAgain$", edits: []edit{
				{"internal/cluster/route/call.go", "		if asOwner || r.Owner.Instance != 0 && o.unasked(r.Owner.Instance) {",
					"		if asOwner || r.Owner.Instance != from && o.unasked(r.Owner.Instance) {"},
			}},
		{name: "a call that a receiver leaves to the giver is routed again", pkg: "./internal/cluster",
			test: "^TestACallThatWaitedForTheHandoverIsRoutedAgain$", edits: []edit{
				{"internal/cluster/answers.go", " == peer.Alive && out.Owner.Instance != t.c.self {", " == peer.Alive {"},
			}},
		{name: "an heir that did not execute a check is asked again", pkg: "./internal/cluster",
			test: "^TestAnHeirThatBecomesTheOwnerIsAsked$", edits: []edit{
				{"internal/cluster/route/call.go", "	o.progress.sent = slices.Delete(o.progress.sent, i, i+1) // the",
					"	if r.Status != peer.Alive {\n		o.progress.sent = slices.Delete(o.progress.sent, i, i+1)\n	} // the"},
			}},
		{name: "no last resort in a minority", pkg: replica, test: "^TestNoLastResortInAMinority$", edits: []edit{
			{"internal/cluster/replica/seek.go", "	if v.Minority() || t.State == peer.Joining {",
				"	if t.State == peer.Joining {"},
		}},
	}
}

// ofResets returns those of resets and refunds that are copied.
func ofResets() []mutation {
	return []mutation{
		{name: "a reset is copied", pkg: "./internal/cluster", test: "^TestResetsAndRefundsAreCopied$", edits: []edit{
			{"internal/cluster/decide.go", "	if q.Outcome.Counters > 0 || made.ID != nil {\n",
				"	if q.Outcome.Counters > 1<<20 {\n"},
		}},
		{name: "a reset that the heir has is done once", pkg: "./chaos/sim", test: "^TestAResetThatTheHeirHasIsDoneOnce$",
			edits: []edit{
				{"internal/cluster/decide.go",
					"	} else if q.Outcome.Counters, made = d.table.ResetOnce(t.At, q.Charge); made.Len() == 0 {\n",
					"	} else if d.table.ResetOnce(t.At, q.Charge); q.Kind == route.KindReset {\n		q.Outcome.Counters = " +
						"d.table.Reset(t.At, q.Charge)\n	} else {\n"},
			}},
		{name: "an owner that is behind remembers no reset", pkg: "./internal/cluster",
			test: "^TestAResetOfAnOwnerThatIsBehind$", edits: []edit{
				{"internal/cluster/decide.go",
					"id == nil || slices.ContainsFunc(parts, func(p *partition) bool { return p.r.Own().Behind() }) {", "id == nil {"},
			}},
		{name: "the id of a reset is copied", pkg: "./internal/cluster", test: "^TestAResetIsKnownByItsID$", edits: []edit{
			{"internal/cluster/decide.go", "	if q.Outcome.Counters > 0 || made.ID != nil {\n", "	if q.Outcome.Counters > 0 {\n"},
		}},
		{name: "a reset waits for the heir", pkg: "./chaos/sim", test: "^TestAPausedOwnerIsAskedForAReset$", edits: []edit{
			{"internal/cluster/decide.go", "		return d.confirm(t, q, parts, answer), nil\n", "		return route.Answered, nil\n"},
		}},
		{name: "a reset without counters waits for the heir", pkg: "./internal/cluster",
			test: "^TestResetsOfOthersAreRefused$", edits: []edit{
				{"internal/cluster/decide.go", "		return d.confirm(t, q, parts, answer), nil\n",
					"		if q.Outcome.Counters == 0 {\n			return route.Answered, nil\n		}\n		return d.confirm(t, q, parts, answer), " +
						"nil\n"},
			}},
		{name: "what follows a reset can be taken back", pkg: "./internal/cluster",
			test: "^TestChargesAfterAResetAreTakenBack$", edits: []edit{
				{"internal/cluster/decide.go",
					"	t.At++ // receipts of the instant of a reset are void, and those of what follows are not\n", ""},
			}},
		{name: "what follows a reset in another turn can be taken back", pkg: "./internal/cluster",
			test: "^TestChargesAfterAResetAreTakenBack$", edits: []edit{
				{"internal/cluster/part.go", "		t.At = max(t.At, p.at)\n", ""},
			}},
		{name: "a clock that was set back is followed", pkg: "./chaos/sim", test: "^TestConformance$/^ClockGoesBack$",
			edits: []edit{
				{"internal/cluster/part.go", "	if p.at-t.At <= maxLate {\n", "	{\n"},
			}},
		{name: "a reset that waits for the heir is not repeated", pkg: "./internal/cluster/replica",
			test: "^TestAWithheldResetStands$", edits: []edit{
				{"internal/cluster/replica/withheld.go", "		case o.resetStands(h.Facts(), counter):", "		case false:"},
			}},
		{name: "a reset that waited is its asker's to repeat", pkg: "./internal/cluster",
			test: "^TestAResetThatWaitedIsAskedForAgain$", edits: []edit{
				{"internal/cluster/decide.go", "		if q.Stale() && len(parts) > 0 {\n", "		if q.Stale() && false {\n"},
			}},
		{name: "a reset waits until one owner has its keys", pkg: "./internal/cluster",
			test: "^TestAResetWaitsUntilOneOwnerHasItsKeys$", edits: []edit{
				{"internal/cluster/route/call.go", "		if !o.split(t) {\n", "		if !o.split(t) && false {\n"},
			}},
		{name: "a reset that a later state overrules is repeated", pkg: "./internal/cluster/replica",
			test: "^TestAWithheldResetStands$", edits: []edit{
				{"internal/cluster/replica/withheld.go", " && !o.resetSince(k.Hash.Hi, counter) {", " && false {"},
			}},
		{name: "a refund is copied", pkg: "./internal/cluster", test: "^TestResetsAndRefundsAreCopied$", edits: []edit{
			{"internal/cluster/decide.go", "d.table.Refund(t.At, q.Charge, receipt) > 0 || known {",
				"d.table.Refund(t.At, q.Charge, receipt) > 1<<20 || known {"},
		}},
	}
}

// ofMoves returns the mutations of moves between nodes and of membership.
func ofMoves() []mutation {
	return []mutation{
		{name: "expired requests are not run", pkg: "./internal/cluster", test: "^TestAnExpiredRequestIsNotRun$",
			edits: []edit{
				{"internal/cluster/requests.go", "	if q.Reply.Over() || t.Now >= q.Until {\n", "	if q.Reply.Over() {\n"},
			}},
		{name: "a share says so", pkg: "./internal/cluster", test: "^TestAMinorityDecidesWithItsShare$", edits: []edit{
			{"internal/cluster/route/policy.go", "					at.InForce = at.Limit.Limit()\n", ""},
		}},
		{name: "a share says so to other members", pkg: "./chaos/sim", test: "^TestThreeOfSevenSaySo$", edits: []edit{
			{"internal/cluster/route/reply.go", "	case byShare(o.task.answer):", "	case false:"},
		}},
		{name: "loopback is refused at the join", pkg: "./internal/cluster/gossip", test: "^TestLoopbackIsRefused$",
			edits: []edit{
				{"internal/cluster/gossip/loopback.go", "	case own == \"\" || itself(addr) == itself(own):", "	case true:"},
			}},
		{name: "a loopback address is refused, the others of its list are not", pkg: "./internal/cluster/gossip",
			test: "^TestLoopbackInAList$", edits: []edit{
				{"internal/cluster/gossip/delegate.go", "		if r != nil && breaksMerge(r) {", "		if r != nil {"},
			}},
		{name: "who starts makes no minority", pkg: "./internal/cluster/members", test: "^TestWhoStartsMakesNoMinority$",
			edits: []edit{
				{"internal/cluster/members/registry.go", "		case a.starts(now), a.departs(now):", "		case a.departs(now):"},
			}},
		{name: "who departs makes no minority", pkg: "./internal/cluster/members", test: "^TestWhoDepartsMakesNoMinority$",
			edits: []edit{
				{"internal/cluster/members/registry.go", "		case a.starts(now), a.departs(now):", "		case a.starts(now):"},
			}},
		{name: "who departs and counts on makes no minority", pkg: "./internal/cluster/members",
			test: "^TestWhoDepartsMakesNoMinority$", edits: []edit{
				{"internal/cluster/members/registry.go", "a.leaving == a.instance &&\n",
					"a.leaving == a.instance && a.run(a.instance).gone() &&\n"},
			}},
		{name: "who leaves without a majority counts on", pkg: "./chaos/sim", test: "^TestLeavingDuringASplit$",
			edits: []edit{
				{"internal/cluster/members/leave.go", "2*(len(v.Members)-1) <= others", "2*(len(v.Members)-1) < 0"},
			}},
		{name: "a member that counts on has not left", pkg: "./internal/cluster/members",
			test: "^TestAMemberThatCountsOnHasNotLeft$", edits: []edit{
				{"internal/cluster/members/registry.go", "			x.left, x.toldLeft = false, nil\n", "			_ = x\n"},
			}},
		{name: "only its own link says that a member counts on", pkg: "./internal/cluster/members",
			test: "^TestAMemberThatCountsOnHasNotLeft$", edits: []edit{
				{"internal/cluster/members/registry.go", "		case direct && k.Instance == from && k.Joining &&",
					"		case k.Joining &&"},
			}},
		{name: "each instance that left is news once", pkg: "./internal/cluster/members",
			test: "^TestNewsOfTwoThatLeftGoesRoundOnce$", edits: []edit{
				{"internal/cluster/members/proven.go", "	news = !x.gone()\n",
					"	news = !x.gone()\n	for i := range a.runs {\n		if r := &a.runs[i]; r != x {\n			r.left, r.toldLeft = " +
						"false, nil\n		}\n	}\n"},
			}},
		{name: "a restart leaves no gap in the count", pkg: "./internal/cluster/members",
			test: "^TestARestartLeavesNoGapInTheCount$", edits: []edit{
				{"internal/cluster/members/registry.go", "		if have.gone && have.next != 0 {",
					"		if have.gone && have.next == 0 && have.next != 0 {"},
			}},
		{name: "a late word does not start a member anew", pkg: "./internal/cluster/members",
			test: "^TestARestartLeavesNoGapInTheCount$", edits: []edit{
				{"internal/cluster/members/registry.go", "(itself || k.Joining && have.run(k.Instance) == nil):", "starts:"},
			}},
		{name: "who is said to start makes no minority", pkg: "./chaos/sim", test: "^TestJoiningTogetherDeniesNothing$",
			edits: []edit{
				{"internal/cluster/members/registry.go", "	starts := itself || k.Joining\n", "	starts := itself\n"},
			}},
		{name: "who starts and answers makes no minority", pkg: "./chaos/sim",
			test: "^TestWhoIsSuspectedWhileItStartsDeniesNothing$", edits: []edit{
				{"internal/cluster/members/roll.go", "			c.Registry().Arrives(k.Name, k.Instance, now)\n", ""},
			}},
		{name: "who leaves with all it sees hands over to who answers", pkg: "./internal/cluster/members",
			test: "^TestLeaveSeesWhoAnswers$", edits: []edit{
				{"internal/cluster/members/roll.go", "return o.State != peer.Leaving", "return true"},
			}},
		{name: "who leaves with all it sees waits for others", pkg: "./internal/cluster/members",
			test: "^TestLeaveSeesWhoAnswers$", edits: []edit{
				{"internal/cluster/members/leave.go", "!m.roll.anyStays() &&", "len(m.roll.live) == 0 &&"},
			}},
		{name: "who leaves alone hands over to who answers", pkg: "./chaos/sim", test: "^TestLeavingToWhoIsUnseen$",
			edits: []edit{
				{"internal/cluster/members/roll.go", "	isolated := self.State == peer.Leaving && !r.anyStays()\n",
					"	isolated := false\n"},
			}},
		{name: "the link says who leaves", pkg: "./internal/cluster/members", test: "^TestTheLinkSaysWhoLeaves$",
			edits: []edit{
				{"internal/cluster/members/roll.go", "			if o.State < peer.Leaving && known.Leaves(o.Name, o.Instance, now) {\n",
					"			if false {\n"},
			}},
		{name: "the link says who leaves, kept", pkg: "./internal/cluster/members", test: "^TestTheLinkSaysWhoLeaves$",
			edits: []edit{
				{"internal/cluster/members/roll.go", "	if known.Leaves(o.Name, o.Instance, now) {\n		o.State = peer.Leaving\n	}\n",
					""},
			}},
		{name: "a member that answers is not dead", pkg: "./chaos/sim", test: "^TestLeavingUnseen$", edits: []edit{
			{"internal/cluster/members/roll.go", "!left && c.Answers(old.Instance, true) {", "!left && false {"},
			{"internal/cluster/members/roll.go", "	if c.Answers(old.Instance, false) {", "	if false {"},
		}},
		{name: "an heir is told the rule", pkg: "./internal/cluster", test: "^TestAnHeirThatNeedsTheRule$", edits: []edit{
			{"internal/cluster/route/call.go", "at >= 0 && from != o.progress.owner {",
				"at > 1<<20 && from != o.progress.owner {"},
		}},
		{name: "sub-windows keep their instants", pkg: "./limiter/arith", test: "^TestMovedCounterFreesNothingEarly$",
			edits: []edit{
				{"limiter/arith/move.go", "max(at-nearest, nearest-at) <= alignedWithin {", "true {"},
			}},
		{name: "drips late rather than early", pkg: "./limiter/arith", test: "^TestMovedCounterFreesNothingEarly$",
			edits: []edit{
				{"limiter/arith/bucket.go", "	if t-last <= min(alignedWithin, (next-last)/2) {", "	if t-last <= (next-last)/2 {"},
			}},
		{name: "a late refund is of its window", pkg: "./limiter/arith", test: "^TestALateRefundIsOfItsWindow$",
			edits: []edit{
				{"limiter/arith/state.go", "	if s.Time > latest && ", "	if s.Time > now && "},
			}},
		{name: "refunds of what lies ahead", pkg: "./limiter/arith", test: "^TestRefundAfterAMove$", edits: []edit{
			{"limiter/arith/state.go", "		at = max(at, s.Time) // it was", "		_ = s.Time // it was"},
		}},
	}
}

// ofHeard returns those of what is believed of what members say.
func ofHeard() []mutation {
	const replica = "./internal/cluster/replica"
	return []mutation{
		{name: "the owner says who is heir", pkg: replica, test: "^TestWhoNamesAnHeir$", edits: []edit{
			{"internal/cluster/replica/learn.go", " && from == a.Epoch.Instance && p.role", " && p.role"},
		}},
		{name: "a reply that names the same owner raises no doubt", pkg: replica, test: "^TestWhatIsDoubtedOfAReply$",
			edits: []edit{
				{"internal/cluster/replica/replica.go", "denies && owner.Before(p.owner) {", "denies {"},
			}},
		{name: "who owns nothing renews nothing", pkg: replica, test: "^TestWhoRenewsForALaterEpoch$", edits: []edit{
			{"internal/cluster/replica/heir.go", "\tif p.own != nil && a.Owner.Instance", "\tif a.Owner.Instance"},
		}},
		{name: "only its receiver refuses a handover", pkg: replica, test: "^TestWhoRefusesAHandover$", edits: []edit{
			{"internal/cluster/replica/heir.go", " && h.next.Instance == from && p.role", " && p.role"},
		}},
		{name: "only its receiver confirms a handover", pkg: replica, test: "^TestWhoConfirmsAHandover$", edits: []edit{
			{"internal/cluster/replica/learn.go", "own.handover != nil && p.owner == own.handover.next {",
				"own.handover != nil {"},
		}},
		{name: "a takeover outlives an answer that ends a last resort", pkg: replica, test: "^TestWhatEndsALastResort$",
			edits: []edit{
				{"internal/cluster/replica/claim.go", "case r.kind == peer.LastResort && p.behind(a):", "case p.behind(a):"},
			}},
		{name: "what a node owned stays known", pkg: replica, test: "^TestWhatIsKnownOnceAnOwnerIsDisproved$", edits: []edit{
			{"internal/cluster/replica/doubt.go", "\tif owner.Before(p.mine) || owner.Instance", "\tif owner.Instance"},
		}},
		{name: "a datagram costs what it is long", pkg: "./internal/cluster/gossip", test: "^TestSmallDatagramsAreCheap$",
			edits: []edit{
				{"internal/cluster/gossip/network.go", "append([]byte(nil), buf[:size]...)",
					"append(make([]byte, 0, maxPacket), buf[:size]...)"},
			}},
	}
}
