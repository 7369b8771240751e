package main

import "slices"

// mutation takes one protection out.
type mutation struct {
	name  string
	edits []edit
	// pkg and test are what should notice; empty: the simulator.
	pkg, test string
}

// edit replaces a piece of a file that occurs once.
type edit struct{ file, old, now string }

// mutations returns all protections and how to take them out.
func mutations() []mutation {
	return slices.Concat(ofProtocol(), ofSeveral(), ofIDs(), ofIDRing(), ofTakeBacks(), ofHolds(), ofBacks(),
		ofSlots(), ofRedisUnits(), ofWideBlocks(), ofAttempts(), ofOverdue(), ofOwners(), ofClaims(), ofSteps(),
		ofHeard(), ofCopies(), ofDisks(), ofMerges(), ofResets(), ofMoves(), ofChecks(), ofBounds(), ofPanics(), ofPorts(),
		ofQuotas(), ofReceipts(), ofJoining(), ofAnswers(), ofLies(), ofAccess(), ofHostile(), ofLeases(), ofEnvoy())
}

// ofProtocol returns those of who owns and who has a copy.
func ofProtocol() []mutation {
	return []mutation{
		{name: "seal", edits: []edit{
			{"internal/cluster/decide.go", "		case role == peer.Owned:\n", "		case role == peer.Owned, role == peer.Sealed:\n"},
		}},
		{name: "fence: a promoted heir acknowledges", pkg: "./internal/cluster",
			test: "^TestAPromotedHeirAcknowledgesNothing$", edits: []edit{
				{"internal/cluster/replica/copy.go",
					"		p.ack(t, from, b, peer.Fenced)\n		return\n	}\n	p.learn(t, b.Epoch, 0)\n	if p.pushing.unpushed",
					`		a := peer.Ack{Partition: p.id, Epoch: b.Epoch, Ping: b.Ping, Seq: b.Seq, Appointment: b.Appointment}
		t.sendAck(from, a)
		return
	}
	p.learn(t, b.Epoch, 0)
	if p.pushing.unpushed`},
			}},
		{name: "an acknowledgement brings the next tick forward", pkg: "./internal/cluster",
			test: "^TestABatchIsDueAfterAnAcknowledgement$", edits: []edit{
				{"internal/cluster/part.go", "\tstep(&p.r, t.inputs())\n\tp.apply(t)\n\tp.rewatch(t)\n",
					"\tstep(&p.r, t.inputs())\n\tp.apply(t)\n"},
			}},
		{name: "withholding beyond D", edits: []edit{
			{"internal/cluster/replica/owner.go", "guarded && (lent || d.old+d.new > o.capOver(t, k.Rule, most))",
				"false && (lent || d.old+d.new > o.capOver(t, k.Rule, most))"},
			{"internal/cluster/replica/owner.go", "	return k.Cost+o.dirty.unacknowledged(k.Hash.Hi) <= limit\n",
				"	return true\n"},
		}},
		{name: "revoke before appoint", edits: []edit{
			{"internal/cluster/replica/heir.go", "	default:\n		own.revoke(t, false)\n	}\n}",
				"	default:\n		own.heir = nil\n		own.appoint(t)\n	}\n}"},
		}},
		{name: "renewal without the old heir's word", edits: []edit{
			{"internal/cluster/replica/heir.go",
				"		// Without its word the owner renews.\n		own.renew = true\n		p.manageHeir(t)\n",
				"		own.heir = nil\n		own.appoint(t)\n"},
			{"internal/cluster/replica/heir.go",
				"		// Nobody else is left, and the old heir could still take over.\n		own.renew = true\n		p.manageHeir(t)\n",
				"		own.heir = nil\n"},
			{"internal/cluster/replica/heir.go", "		o.renew = o.renew || g == o.heir\n",
				"		if g == o.heir {\n			o.heir = nil\n		}\n"},
		}},
		{name: "the giver as first heir", edits: []edit{
			{"internal/cluster/replica/handoff.go",
				"	p.own.heir = &target{to: giver, base: b.Epoch, begun: true, whole: true, sent: p.seq, acked: p.seq, " +
					"appointment: 1}\n", ""},
		}},
		{name: "a counter granted to one claimant", pkg: "./internal/cluster", test: "^TestACounterIsGrantedToOneClaimant$",
			edits: []edit{
				{"internal/cluster/replica/claim.go",
					"		case c.Counter > p.grant && c.Counter > p.owner.Counter && !p.holdsAgainst(c):", "		case !p.holdsAgainst(c):"},
			}},
		{name: "a grant that binds", pkg: "./internal/cluster", test: "^TestAGrantBinds$", edits: []edit{
			{"internal/cluster/replica/copy.go", "	case p.unfit(t) || p.grant > b.Epoch.Counter:", "	case p.unfit(t):"},
			{"internal/cluster/replica/handoff.go", "p.fresh || p.pledged().grant > b.Next.Counter || ", "p.fresh || "},
		}},
		{name: "a live holder's answer ends a claim", edits: []edit{
			{"internal/cluster/replica/claim.go", "		case !holder && a.Role >= peer.Sealed && ",
				"		case !holder && a.Role > peer.Owned && "},
		}},
		{name: "silence of a fresh instance", pkg: "./internal/cluster", test: "^TestAFreshInstanceHasNoSay$", edits: []edit{
			{"internal/cluster/replica/claim.go", "		case p.fresh:\n", "		case false:\n"},
			{"internal/cluster/replica/copy.go", "bool { return p.fresh || ", "bool { return "},
		}},
		{name: "kept copies", pkg: "./internal/cluster", test: "^TestARevokedHeirKeepsItsCopy$", edits: []edit{
			{"internal/cluster/replica/copy.go",
				"		p.role, p.appointment = peer.Copy, 0\n		if p.claiming.round != nil && p.claiming.round.kind == peer.Takeover {",
				"		p.drop()\n		if p.claiming.round != nil && p.claiming.round.kind == peer.Takeover {"},
		}},
		{name: "merge of what a fenced owner had", edits: []edit{
			{"internal/cluster/replica/handoff.go",
				"	if err := p.node.Store.Import(int(p.id), t.At, all, table.Merge); err != nil {",
				"	if err := p.node.Store.Import(int(p.id), t.At, all[:0], table.Merge); err != nil {"},
		}},
		{name: "taking back when fenced", edits: []edit{
			{"internal/cluster/replica/learn.go",
				"	own.takeBack(t, everyEpoch, p.owner) // resets too: the later owner may not have them\n	p.disown()\n",
				"	for _, h := range own.withheld {\n		t.release(h.Reply)\n	}\n	p.disown()\n"},
		}},
		{name: "taking back before merging", pkg: "./internal/cluster",
			test: "^TestWithheldChargesAreTakenBackBeforeMerging$", edits: []edit{
				{"internal/cluster/replica/handoff.go", "	p.own.takeBack(t, b.Epoch.Counter, p.owner)\n", ""},
			}},
		{name: "every member before an empty start", pkg: "./internal/cluster/replica", test: "^TestTheLastResortOfClosed$",
			edits: []edit{
				{"internal/cluster/replica/seek.go", "	if answered >= n {\n", "	if 2*answered > n {\n"},
			}},
		{name: "the probe before reopening", edits: []edit{
			{"internal/cluster/replica/handoff.go",
				"	case t.Now-h.goneAt >= claimWithin && p.claiming.round == nil:\n		p.startRound(t, peer.Reopen, p.node.Self, " +
					"p.epoch)\n", "	case p.claiming.round == nil:\n		p.reopened(t, peer.Epoch{Counter: h.next.Counter + 1, " +
					"Instance: p.node.Self})\n"},
			{"internal/cluster/replica/handoff.go", "	case t.View.Has(h.next.Instance):\n		h.goneAt = 0\n",
				"	case t.View.Has(h.next.Instance) && t.Now-own.from.since < limiter.Second:\n		h.goneAt = 0\n"},
		}},
		{name: "relay", pkg: "./internal/cluster/mesh", test: "^TestWhoRelaysWhat$", edits: []edit{
			{"internal/cluster/mesh/relay.go", "	from := int(m.rotation.Add(1))\n	for i := range n {\n",
				"	from := int(m.rotation.Add(1))\n	for i := range n - n {\n"},
		}},
		{name: "heir before policy", edits: []edit{
			{"internal/cluster/route/call.go", "	if o.progress.ended || o.task.kind == KindRefund &&",
				"	if o.progress.ended || o.task.kind >= KindCheck ||"},
		}},
		{name: "all or nothing", edits: []edit{
			{"internal/cluster/route/conclude.go",
				"	if !r.prepared() {", "	if true {"},
		}},
		{name: "refund cap", pkg: "./limiter/limitertest", test: ".", edits: []edit{
			{"limiter/arith/bucket.go", "level{hi, lo}.minus((*rate)(l).levelOf(rest))",
				"level{hi & 0, lo & 0}.minus((*rate)(l).levelOf(rest))"},
		}},
		{name: "fallback survives reconnection", edits: []edit{
			{"internal/cluster/reach.go", "	c.mesh.Up(i)\n",
				"	c.mesh.Up(i)\n	for _, p := range c.parts {\n		c.config.Fallback.Drop(int(p.id))\n	}\n"},
		}},
		{name: "the ping after the wait began", pkg: "./internal/cluster", test: "^TestThePingIsSentAfterTheWaitBegan$",
			edits: []edit{
				{"internal/cluster/replica/withheld.go", "	return h.waitSilent.since != 0 && h.waitSilent.since >= o.waitSince && ",
					"	return h.waitSilent.since != 0 && "},
				{"internal/cluster/replica/copy.go", "	if g.waitSilent.since == 0 || g.waitSilent.since < waitSince {",
					"	if g.waitSilent.since == 0 {"},
			}},
		{name: "merge, not sum", edits: []edit{
			{"limiter/arith/merge.go", "	both := max(into.A+into.B, from.A+from.B)\n	into.A = max(into.A, from.A)\n",
				"	both := into.A + into.B + from.A + from.B\n	into.A += from.A\n"},
			{"limiter/arith/merge.go",
				"	if l.P.Align == limiter.AlignFirstHit {\n		into.Time, into.A = max(into.Time, from.Time), max(into.A, from.A)\n",
				"	if l.P.Align == limiter.AlignFirstHit {\n		into.Time, into.A = max(into.Time, from.Time), into.A+from.A\n"},
		}},
	}
}

// ofChecks returns those of what becomes of one check, reset or refund.
func ofChecks() []mutation {
	return []mutation{
		{name: "a denial writes nothing", pkg: "./internal/cluster", test: "^TestDenialsAreCopiedWhereTheyWrite$",
			edits: []edit{
				{"internal/cluster/decide.go", "		if !changed && id == nil {\n",
					"		if !changed && id == nil && answer.Allowed {\n"},
			}},
		{name: "a block is copied when it begins", pkg: "./internal/cluster", test: "^TestABlockOutlivesItsOwner$",
			edits: []edit{
				{"internal/cluster/decide.go", " || arith.BlockBegan(d) && d.Limit(j).Blocked {", " {"},
			}},
		{name: "a denial in a block writes nothing", pkg: "./internal/cluster", test: "^TestDenialsAreCopiedWhereTheyWrite$",
			edits: []edit{
				{"internal/cluster/decide.go", "arith.BlockBegan(d) && d.Limit(j).Blocked {", "d.Limit(j).Blocked {"},
			}},
		{name: "the end of a cached denial", pkg: "./internal/cluster/route", test: "^TestCachedDenialsOnTheWay$",
			edits: []edit{
				{"internal/cluster/route/denials.go", "now >= e.asked && now < e.until {", "now >= e.asked {"},
			}},
		{name: "a charge ends cached denials", pkg: "./chaos/sim", test: "^TestCachedDenialsAreTheOwners$", edits: []edit{
			{"internal/cluster/route/reply.go",
				"	if arith.Fields(&o.task.answer.Receipt).Charged != 0 {\n		o.c.denials.forget(o.task.charge)",
				"	if false && arith.Fields(&o.task.answer.Receipt).Charged != 0 {\n		o.c.denials.forget(o.task.charge)"},
		}},
		{name: "a refund ends cached denials", pkg: "./chaos/sim", test: "^TestCachedDenialsAreTheOwners$", edits: []edit{
			{"internal/cluster/route/router.go",
				"receipt: &r, done: func(_ *Turn, o *Call) {\n		// Not before: denials from before it may still have been on " +
					"their way.\n		c.denials.forget(charge)\n",
				"receipt: &r, done: func(_ *Turn, o *Call) {\n"},
		}},
		{name: "a reset ends cached denials", pkg: "./chaos/sim", test: "^TestCachedDenialsAreTheOwners$", edits: []edit{
			{"internal/cluster/route/router.go",
				"	c.start(t, &Call{task: task{kind: KindReset, charge: charge, answer: new(limiter.Decision), done: func(_ " +
					"*Turn, o *Call) {\n		c.denials.forget(charge)\n",
				"	c.start(t, &Call{task: task{kind: KindReset, charge: charge, answer: new(limiter.Decision), done: func(_ " +
					"*Turn, o *Call) {\n"},
		}},
		{name: "a refund is asked of one member", pkg: "./internal/cluster", test: "^TestARefundIsAskedOnce$", edits: []edit{
			{"internal/cluster/route/call.go",
				"	if o.progress.ended || o.task.kind == KindRefund && (len(o.progress.sent) > 0 || o.progress.tried > 0) {\n",
				"	if o.progress.ended {\n"},
		}},
		{name: "memory of its own for what waited", pkg: "./internal/cluster", test: "^TestTheDeadlineWhileItIsDecidedHere$",
			edits: []edit{
				{"internal/cluster/route/local.go", "	answer, idle := new(limiter.Decision), (*limiter.Decision)(nil)\n",
					"	answer, idle := o.task.answer, (*limiter.Decision)(nil)\n"},
			}},
		{name: "a tick for a deadline of its own", pkg: "./internal/cluster", test: "^TestADeadlineOfItsOwn$", edits: []edit{
			{"internal/cluster/tick.go", "max(min(k.core.calls.NextExact()-now, replica.TickEvery), limiter.Millisecond)",
				"replica.TickEvery"},
		}},
		{name: "hasty checks find a silent owner", pkg: "./internal/cluster", test: "^TestHastyChecksFindASilentOwner$",
			edits: []edit{
				{"internal/cluster/route/call.go", "	if hasty {\n", "	if false && hasty {\n"},
			}},
		{name: "one question for each partition", pkg: "./internal/cluster", test: "^TestHastyChecksFindASilentOwner$",
			edits: []edit{
				{"internal/cluster/route/policy.go", "LoadOrStore(partition, true); asked {",
					"LoadOrStore(partition, true); false && asked {"},
			}},
		{name: "a policy before Envoy's deadline", pkg: "./internal/envoy", test: "^TestPolicyAnswersBeforeEnvoysDeadline$",
			edits: []edit{
				{"internal/envoy/service.go", "s.decideItems(patient(ctx), items)", "s.decideItems(ctx, items)"},
			}},
	}
}

// ofBounds returns the mutations of how members are counted, of bounds on what others send, and of whom a node
// believes.
func ofBounds() []mutation {
	return []mutation{
		{name: "a minority forgets nobody", pkg: "./internal/cluster/members", test: "^TestOnlyAMajorityForgets$",
			edits: []edit{
				{"internal/cluster/members/registry.go", "if now < over || 2*alive <= recent {", "if now < over || 2*alive < 0 {"},
			}},
		{name: "who is linked stays met", pkg: "./internal/cluster/members", test: "^TestInventedRunsOfAMember$",
			edits: []edit{
				{"internal/cluster/mesh/reach.go", "return l.up.Load() && l.name == name",
					"return l.up.Load() && l.name == name && false"},
			}},
		{name: "snapshots that never end are dropped", pkg: "./internal/cluster", test: "^TestSnapshotsThatNeverEnd$",
			edits: []edit{
				{"internal/cluster/replica/staging.go", "t.Now-p.stagedAt >= stagedFor", "t.Now-p.stagedAt >= 100*stagedFor"},
			}},
		{name: "room for streams of gossip from other addresses", pkg: "./internal/cluster/gossip",
			test: "^TestStreamsHaveABound$", edits: []edit{
				{"internal/cluster/gossip/guard.go", "			if len(streams) > len(most) {\n", "			if most == nil {\n"},
			}},
		{name: "an end of silent streams of gossip", pkg: "./internal/cluster/gossip",
			test: "^TestASilentStreamIsClosedSoon$", edits: []edit{
				{"internal/cluster/gossip/guard.go", "AfterFunc(firstByteWithin, ", "AfterFunc(10*firstByteWithin, "},
			}},
		{name: "a leaving node waits for those it has lost", pkg: "./internal/cluster/members",
			test: "^TestLeaveWaitsForTheLost$", edits: []edit{
				{"internal/cluster/members/leave.go", "	case closed || whole && !alone || now >= by:",
					"	case closed || whole || now >= by:"},
			}},
		{name: "who leaves tells whom gossip has not shown", pkg: "./internal/cluster",
			test: "^TestWhoLeavesTellsAllInReach$", edits: []edit{
				{"internal/cluster/members.go", "	t.Out.Spread(self, v.Has)\n", ""},
			}},
		{name: "who leaves tells who connects", pkg: "./internal/cluster",
			test: "^TestWhoLeavesTellsAllInReach$", edits: []edit{
				{"internal/cluster/members.go", "	if leaves {\n", "	if leaves && t == nil {\n"},
			}},
		{name: "a reset is newer than what a paused owner had", pkg: "./chaos/sim", test: "^TestAResetStands$", edits: []edit{
			{"internal/cluster/replica/handoff.go", "		if !p.own.resetSince(k.Hi, b.Epoch.Counter) {", "		if true {"},
		}},
		{name: "who does not answer may be there", pkg: "./internal/cluster/members",
			test: "^TestWhoDoesNotAnswerMayBeThere$", edits: []edit{
				{"internal/cluster/members/membership.go", "if m.config.mute() != nil {", "if false {"},
			}},
		{name: "a bound of lines about strangers", pkg: "./internal/peerlink", test: "^TestLinesAboutStrangersAreBounded$",
			edits: []edit{
				{"internal/peerlink/refusallog.go", "	if n.lines >= maxLinesAMinute {", "	if n.lines >= 1000*maxLinesAMinute {"},
			}},
		{name: "a bound of what waits for others", pkg: "./internal/cluster", test: "^TestWhatWaitsForOthersIsBounded$",
			edits: []edit{
				{"internal/cluster/requests.go", "n.Add(1) > maxPending", "n.Add(1) > 2*maxPending"},
			}},
		{name: "a bound of what a member does not read", pkg: "./internal/cluster/mesh",
			test: "^TestAMemberThatReadsNothing$", edits: []edit{
				{"internal/cluster/mesh/outbox.go", "o.controlSize+size > maxControlSize",
					"o.controlSize+size > 16*maxControlSize"},
			}},
		{name: "epochs that can be", pkg: "./internal/cluster", test: "^TestWhatCannotBeIsNotTakenIn$", edits: []edit{
			{"internal/cluster/credible.go", "return e.Counter <= b.counter && ", "return "},
		}},
		{name: "resets are the owner's to allow", pkg: "./internal/cluster", test: "^TestResetsOfOthersAreRefused$",
			edits: []edit{
				{"internal/cluster/decide.go", "		if d.forbids(q) {\n			return route.Forbidden, nil\n		}\n", ""},
			}},
		{name: "nothing is left on a link that is down", edits: []edit{
			{"internal/cluster/mesh/reach.go", "	l.out.carried, l.out.relayed, l.out.relayedSize = nil, nil, 0\n",
				"	s.carried, s.relayed = nil, nil\n"},
		}},
		{name: "ended instances are forgotten", pkg: "./internal/cluster", test: "^TestEndedInstancesAreForgotten$",
			edits: []edit{
				{"internal/cluster/core.go", "	c.mesh.ForgetEnded(t.Now)\n", ""},
			}},
		{name: "numbers of frames go on", pkg: "./internal/cluster/mesh", test: "^TestNumbersOfFramesContinue$",
			edits: []edit{
				{"internal/cluster/mesh/mesh.go", "	l.line.number = m.numbered\n", ""},
			}},
		{name: "word of an earlier asking", pkg: "./internal/cluster", test: "^TestWordOfAnEarlierAsking$", edits: []edit{
			{"internal/cluster/route/call.go", "i < 0 || tryOf(r.ID) != o.progress.sent[i].try {", "i < 0 {"},
		}},
		{name: "patience after standing still", pkg: "./internal/cluster", test: "^TestStoodStillUntilTheHeirsWord$",
			edits: []edit{
				{"internal/cluster/replica/withheld.go", "t.Now-since < EaseFor && int32(o.heard-ping) <= 0 {",
					"t.Now < since && int32(o.heard-ping) <= 0 {"},
			}},
		{name: "a minority's share", pkg: "./chaos/sim", test: "^TestSim$/^split$", edits: []edit{
			{"internal/cluster/share.go", "	if v.Minority() {\n", "	if v.Minority() && false {\n"},
			{"internal/cluster/few.go", "	if !few {\n", "	if few || !few {\n"},
		}},
		{name: "a claim that few answer", pkg: "./chaos/sim", test: "^TestASplitIsNoticedByItsClaims$", edits: []edit{
			{"internal/cluster/part.go", "				t.c.decider.shares.few.claimed(t.Now)\n", ""},
		}},
		{name: "who has left is told over links", pkg: "./chaos/sim", test: "^TestWhoLeavesWhileAnotherStarts$",
			edits: []edit{
				{"internal/cluster/members/membership.go", "			if len(gone) > 0 {\n", "			if len(gone) > 1<<20 {\n"},
			}},
		{name: "who has left says so to who connects", pkg: "./chaos/sim", test: "^TestWhoLeavesSaysSoItself$",
			edits: []edit{
				{"internal/cluster/members.go", "		c.registry.Hear(c.self, []peer.Known{self}, 0, t.Now)\n", ""},
			}},
		{name: "who has left counts no more, whatever gossip calls it", pkg: "./chaos/sim",
			test: "^TestWhoLeavesWhenGossipFails$", edits: []edit{
				{"internal/cluster/members/leave.go", "(x.ended || !dead && x.gone())", "!dead && x.gone()"},
			}},
		{name: "who claims nothing asks", pkg: "./chaos/sim", test: "^TestACutIsNoticedWithoutAClaim$", edits: []edit{
			{"internal/cluster/share.go", "			s.few.ask(t, t.view())\n", ""},
		}},
		{name: "who is lost may not be alone", pkg: "./chaos/sim", test: "^TestACutIsNoticedByTheFirstThatIsLost$",
			edits: []edit{
				{"internal/cluster/few.go", "	if !lost {\n", "	if true {\n"},
			}},
		{name: "half is no majority", pkg: "./chaos/sim", test: "^TestASplitIsNoticedByItsClaims$", edits: []edit{
			{"internal/cluster/few.go", "few && 2*n <= v.Recent\n", "few && 2*n < v.Recent\n"},
		}},
		{name: "who joins is on no side of a split", pkg: "./chaos/sim",
			test: "^TestWhoStandsStillWhileItStartsDeniesNothing$", edits: []edit{
				{"internal/cluster/few.go", "} else if m.State == peer.Active {\n", "} else {\n"},
			}},
		{name: "no live counter makes room", pkg: "./limiter/table", test: ".", edits: []edit{
			{"limiter/table/sweep.go", "		if at <= now {\n",
				"		if at <= now || p.table.room.keys.Load() >= p.table.room.maxKeys*9/10 && s.place%4 == 0 {\n"},
		}},
		{name: "the last frames of a node that leaves arrive", pkg: "./chaos/sim", test: "^TestTheLastFramesOfALeavingNode$",
			edits: []edit{
				{"chaos/sim/node.go", "(n.asked > 0 || n.w.underWay(n))", "n.asked > 0"},
			}},
		{name: "instance ids", edits: []edit{
			{"chaos/sim/node.go", "inst: peer.Instance(w.rng.Uint64() | 1)",
				"inst: peer.Instance(0x1000*uint64(name[0]) + w.rng.Uint64()&0 + 1)"},
			{"cluster/member.go", "	instance, err := newInstance()\n",
				"	_, err := newInstance()\n	instance := peer.Instance(0x1000 + uint64(m.config.Name[len(m.config.Name)-1]))\n"},
		}},
	}
}
