package main

// ofCopies returns those of copies that are not needed any more, each with a test of its step.
func ofCopies() []mutation {
	const replica = "./internal/cluster/replica"
	return []mutation{
		{name: "a copy without room is sent the same again later", pkg: replica,
			test: "^TestACopyWithoutRoomIsSentTheSameLater$", edits: []edit{
				{"internal/cluster/replica/heir.go", "g.sentAt, g.tries = now, tries", "g.sentAt, g.tries = 0, tries"},
			}},
		{name: "a check that waits has a charge of its own", pkg: "./internal/cluster",
			test: "^TestTheChargesOfABatchAreReused$", edits: []edit{
				{"internal/cluster/check.go", "charge := charges[i].Clone()", "charge := &charges[i]"},
			}},
		{name: "names are asked for of a check that waits", pkg: "./internal/cluster", test: "^TestNamesAreAskedForInABatch$",
			edits: []edit{
				{"internal/cluster/check.go", "charges[o.index].Unnamed = o.charge.Unnamed", "_ = o.charge.Unnamed"},
			}},
		{name: "a share lasts until others have said what they have", pkg: "./internal/cluster",
			test: "^TestAMinorityDecidesWithItsShare$", edits: []edit{
				{"internal/cluster/share.go", "	if len(old.Members) > 0 && old.Minority()",
					"	if len(old.Members) < 0 && old.Minority()"},
			}},
		{name: "a share ends with a merge", pkg: "./internal/cluster", test: "^TestAShareEndsWithAMerge$", edits: []edit{
			{"internal/cluster/share.go", " && !p.r.Own().TookAfter(r.at) {", " {"},
		}},
		{name: "the last attempt waits for the others", pkg: "./internal/cluster",
			test: "^TestTheLastAttemptWaitsForTheOthers$", edits: []edit{
				{"internal/cluster/replica/prepared.go", "max(inDoubtFor, (w.Until-t.Now)/4)", "inDoubtFor"},
			}},
		{name: "a copy stays until a later epoch has an heir", pkg: replica,
			test: "^TestACopyStaysUntilALaterEpochHasAnHeir$", edits: []edit{
				{"internal/cluster/replica/learn.go", " || heir == 0 || heir == p.node.Self || !p.outdated():", ":"},
			}},
		{name: "a copy is kept from an owner that may be false", pkg: "./chaos/sim", test: "^TestAHostileMember$",
			edits: []edit{
				{"internal/cluster/replica/learn.go",
					"	case p.epoch != p.mine && !p.FromDisk() && p.grant == p.owner.Counter && p.grantFor == p.owner.Instance:\n",
					"	case true:\n"},
			}},
		{name: "what a node decided is kept whoever was granted", pkg: replica, test: "^TestAttacksOnAKeptCopy$",
			edits: []edit{
				{"internal/cluster/replica/learn.go", "	case p.epoch != p.mine && !p.FromDisk()", "	case !p.FromDisk()"},
			}},
		{name: "no delta builds on what a node decided", pkg: replica, test: "^TestAttacksOnAKeptCopy$", edits: []edit{
			{"internal/cluster/replica/copy.go", "p.role < peer.Copy || p.epoch == p.mine || p.epoch != b.BaseEpoch",
				"p.role < peer.Copy || p.epoch != b.BaseEpoch"},
		}},
		{name: "a former owner asks for a snapshot", pkg: replica, test: "^TestAFormerOwnerAsksForASnapshot$", edits: []edit{
			{"internal/cluster/replica/copy.go", "p.role < peer.Copy || p.epoch == p.mine || p.epoch != b.Epoch",
				"p.role < peer.Copy || p.epoch != b.Epoch"},
		}},
		{name: "an owner asks whether it has the only copy", pkg: replica, test: "^TestASoleCopyIsTheOnlyOne$", edits: []edit{
			{"internal/cluster/replica/heir.go", "	o.retired.add(old.to)\n	o.forgetCopied",
				"	o.retired.add(old.to)\n	o.soleCopy = t.View.NoOtherActive()\n	o.forgetCopied"},
		}},
		{name: "the last heir is dismissed", pkg: replica, test: "^TestTheLastHeirIsDismissed$", edits: []edit{
			{"internal/cluster/replica/dismiss.go",
				"			t.sendRevoke(r[i].member, peer.Revoke{Partition: o.id, Epoch: o.held.epoch, Drop: true}, false)\n", ""},
		}},
		{name: "an announcement without an heir may be late", pkg: replica, test: "^TestACopyIsDroppedOnceItIsMerged$",
			edits: []edit{
				{"internal/cluster/replica/learn.go", " && p.role < peer.Sealed && a.Heir != 0 {", " && p.role < peer.Sealed {"},
			}},
		{name: "a copy that is not wanted is dismissed", pkg: replica, test: "^TestACopyThatIsNotWantedIsDismissed$",
			edits: []edit{
				{"internal/cluster/replica/heir.go", "			o.retired.add(g.to)\n", ""},
			}},
		{name: "a copy that may be under way is dismissed", pkg: replica, test: "^TestACopyThatIsNotWantedIsDismissed$",
			edits: []edit{
				{"internal/cluster/replica/heir.go", "		if g.ping != 0 {", "		if g.begun {"},
			}},
		{name: "who is dismissed is told again over a new connection", pkg: replica, test: "^TestTheLastHeirIsDismissed$",
			edits: []edit{
				{"internal/cluster/replica/replica.go", "		p.own.retired.again(i)\n", ""},
			}},
		{name: "who takes a copy after it was dismissed is told again", pkg: replica,
			test: "^TestWhatOvertakesASnapshotIsSaidAgain$", edits: []edit{
				{"internal/cluster/replica/heir.go", "		own.retired.again(from)\n", ""},
			}},
		{name: "the last two that leave keep both copies", pkg: replica, test: "^TestTheLastTwoThatLeaveKeepBothCopies$",
			edits: []edit{
				{"internal/cluster/replica/heir.go", " && v.Active(p.node.Self) && v.Joining() == 0:", " && v.Joining() == 0:"},
			}},
		{name: "an owner that leaves has nobody drop the last copy", pkg: replica,
			test: "^TestAnOwnerThatLeavesAsksNobodyToDropItsCopy$", edits: []edit{
				{"internal/cluster/replica/heir.go", "			stays := v.Active(p.node.Self) || v.Joining() > 0\n",
					"			stays := true\n"},
			}},
		{name: "a giver that seems to join is heir", pkg: replica, test: "^TestAGiverThatSeemsToJoinIsHeir$", edits: []edit{
			{"internal/cluster/replica/heir.go", " m != nil && m.State == peer.Joining {\n",
				" m != nil && m.State > peer.Leaving {\n"},
		}},
		{name: "who handed over and leaves is no heir", pkg: replica, test: "^TestAGiverThatSeemsToJoinIsHeir$",
			edits: []edit{
				{"internal/cluster/replica/heir.go", " m != nil && m.State == peer.Joining {\n", " m != nil {\n"},
			}},
		{name: "an heir that has lapsed is appointed again", pkg: replica, test: "^TestALapsedHeirIsAppointedAgain$",
			edits: []edit{
				{"internal/cluster/replica/copy.go", "pinging, g.lapsed, (", "pinging, ("},
			}},
		{name: "an owner whose heir has lapsed does not rest", pkg: replica, test: "^TestALapsedHeirIsAppointedAgain$",
			edits: []edit{
				{"internal/cluster/replica/due.go", " || own.heir.lapsed || ", " || "},
			}},
		{name: "what an heir answered before it accepted", pkg: replica, test: "^TestALapsedHeirIsAppointedAgain$",
			edits: []edit{
				{"internal/cluster/replica/heir.go", "	if lapsed && a.Ping != g.ping {", "	if false {"},
			}},
	}
}
