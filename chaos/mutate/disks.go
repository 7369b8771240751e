package main

// ofDisks returns those of what members read back from disks.
func ofDisks() []mutation {
	const replica, core = "./internal/cluster/replica", "./internal/cluster"
	const save, seek = "internal/cluster/replica/save.go", "internal/cluster/replica/seek.go"
	const disk, cores = "./internal/disk", "internal/cluster/save.go"
	return []mutation{
		{name: "the floor of epochs is read back", pkg: replica, test: "^TestWhatIsReadBack$", edits: []edit{
			{save, "p.top = max(p.top, a.Top, a.Grant, a.Owner.Counter)", "_ = a.Top"},
		}},
		{name: "grants are read back", pkg: replica, test: "^TestWhatIsReadBack$", edits: []edit{
			{save, "	if a.Grant > p.grant {", "	if a.Grant > p.grant && a.Grant == 0 {"},
		}},
		{name: "what is read back is a copy", pkg: replica, test: "^TestWhatIsReadBack$", edits: []edit{
			{save, "	p.restored = p.role == peer.Copy\n	p.point(t)\n	return fits",
				"	p.role = peer.Heir\n	p.point(t)\n	return fits"},
		}},
		{name: "a mark of a good end is taken back", pkg: "./cluster", test: "^TestAnEndInGoodOrderLosesNothing$",
			edits: []edit{{"cluster/restore.go", "if k.disk.Restored(len(damages) == 0) {",
				"if k.disk.Restored(len(damages) == 0) && bad > 0 {"}}},
		{name: "a mark of a good end is the last record", pkg: core, test: "^TestAMarkIsTheLastRecord$", edits: []edit{
			{cores, "	if d.ended = 0; wants(endedKey) {", "	if wants(endedKey) {"},
		}},
		{name: "all have ended in good order", pkg: replica, test: "^TestALastResortThatHasLostNothing$", edits: []edit{
			{save, "a.has && a.Ended != 0 &&", "a.has &&"},
		}},
		{name: "all that ended in good order are back", pkg: replica, test: "^TestALastResortThatHasLostNothing$",
			edits: []edit{{save, "p.epoch == last &&\n		answered >= p.n0(t, true)+p.node.Peers.Told()", "p.epoch == last"}}},
		{name: "a member that has nothing as owner has claimed in vain", pkg: replica,
			test: "^TestALastResortThatHasLostNothing$", edits: []edit{
				{save, "			if w == r.base.Instance && a.Epoch != r.base {", "			if w == r.base.Instance && r.base.Counter == 0 {"},
			}},
		{name: "a member that has something as owner has owned", pkg: replica, test: "^TestALastResortThatHasLostNothing$",
			edits: []edit{{save, "w == r.base.Instance && a.Epoch != r.base {", "w == r.base.Instance {"}}},
		{name: "the last owner has ended in good order", pkg: replica, test: "^TestALastResortThatHasLostNothing$",
			edits: []edit{{save, "	owner := p.node.Ended == last.Instance ||", "	owner := true ||"}}},
		{name: "a closed partition waits for all disks", pkg: replica, test: "^TestACopyFromADiskPassesOverNobody$",
			edits: []edit{{seek, "!p.anyFromDisk(r) &&", "true &&"}}},
		{name: "a closed partition waits for whom one member knows", pkg: replica, test: "^TestTheLastResortOfClosed$",
			edits: []edit{{seek, "	n := p.n0(t, true) + p.node.Peers.Told()\n", "	n := p.n0(t, true)\n"}}},
		{name: "names are told by members in the view", pkg: "./internal/cluster/members",
			test: "^TestWhoIsToldOfAndDoesNotCount$", edits: []edit{
				{"internal/cluster/members/proven.go", "return by != nil && by.live &&", "return by != nil &&"},
			}},
		{name: "who is known from the disk is dialled where gossip has it", pkg: "./internal/cluster/members",
			test: "^TestTheAddressOfWhoWasThereBefore$", edits: []edit{
				{"internal/cluster/members/roll.go",
					"		if slices.ContainsFunc(out, func(o peer.Member) bool { return o.Instance == k.Instance }) {\n",
					"		if false {\n"},
			}},
		{name: "another's word stays that on a disk", pkg: "./internal/cluster/members",
			test: "^TestWordsStayWordsOnADisk$", edits: []edit{
				{"internal/cluster/members/restore.go", "met: len(k.Path) == 0,", "met: true,"},
			}},
		{name: "an available partition waits for the others", pkg: replica,
			test: "^TestAnAvailablePartitionWaitsForTheOthers$", edits: []edit{
				{seek, " && !p.awaits(t, r)", ""},
			}},
		{name: "who has read nothing waits for the others", pkg: replica,
			test: "^TestWhoHasReadNothingWaitsForTheOthers$", edits: []edit{
				{"internal/cluster/replica/save.go", "	if t.Now >= p.node.RestoreUntil {",
					"	if t.Now >= p.node.RestoreUntil || !p.anyFromDisk(r) {"},
			}},
		{name: "who is gone is silent while others are awaited", pkg: replica,
			test: "^TestWhoIsGoneIsSilentWhileOthersAreAwaited$", edits: []edit{
				{seek, "return p.gone(t, r, 0, p.owner.Instance) &&",
					"return !p.awaits(t, r) && p.gone(t, r, 0, p.owner.Instance) &&"},
			}},
		{name: "who leaves last starts nothing", pkg: replica, test: "^TestWhoLeavesLastStartsNothing$", edits: []edit{
			{seek, "v.Owner(p.id) != p.node.Self || t.State != peer.Active {",
				"v.Owner(p.id) != p.node.Self || t.State == peer.Joining {"},
		}},
		{name: "who leaves waits for what its disk has", pkg: replica, test: "^TestWhoLeavesWaitsForWhatItsDiskHas$",
			edits: []edit{{"internal/cluster/replica/inspect.go",
				"	if p.FromDisk() && !(p.outdated() && v.Has(p.owner.Instance)) {", "	if false {"}}},
		{name: "who leaves goes when an owner has what its disk has", pkg: replica,
			test: "^TestWhoLeavesWaitsForWhatItsDiskHas$", edits: []edit{{"internal/cluster/replica/inspect.go",
				"	if p.FromDisk() && !(p.outdated() && v.Has(p.owner.Instance)) {", "	if p.FromDisk() {"}}},
		{name: "who leaves last ends what it claims", pkg: replica, test: "^TestWhoLeavesLastStartsNothing$", edits: []edit{
			{seek, " || t.State == peer.Leaving && t.View.NoOtherActive()", ""},
		}},
		{name: "a copy from a disk is kept for a while", pkg: replica, test: "^TestACopyFromADiskIsKept$", edits: []edit{
			{"internal/cluster/replica/learn.go", "p.epoch != p.mine && !p.FromDisk() &&", "p.epoch != p.mine &&"},
		}},
		{name: "a copy that moved away stays for a while", pkg: replica, test: "^TestWhatIsSaved$", edits: []edit{
			{save, "case t.Now-s.gone >= keptSaves*p.node.SaveEvery+keptSavesFor:", "default:"},
			{save, "case s.gone == 0:", "case s.gone == -1:"},
		}},
		{name: "old records are kept", pkg: replica, test: "^TestOldRecordsAreKept$", edits: []edit{
			{save, "s.old, s.has = s.old || s.has, false", "s.has = false"},
		}},
		{name: "a state that is replaced is saved anew", pkg: core, test: "^TestAStateThatIsReplacedWhileItIsSaved$",
			edits: []edit{{cores, "for range 1 + savedAgain {", "for range 1 {"}}},
		{name: "a refused batch costs no other", pkg: core, test: "^TestARefusedBatchCostsNoOther$", edits: []edit{
			{cores, "refused, err = append(refused, uint32(b.Partition)), " +
				"fmt.Errorf(\"%w: a batch of partition %d\", errRestore,\n				b.Partition)\n			continue",
				"return refused, errRestore"},
		}},
		{name: "a version that is damaged is a damage", pkg: disk, test: "^TestADamagedHeaderIsNotRefused$", edits: []edit{
			{"internal/disk/segment.go", "if whole(append(ours, b[len(ours):]...)) {",
				"if false && whole(append(ours, b[len(ours):]...)) {"},
		}},
		{name: "a damage costs one record", pkg: disk, test: "^TestADamageCostsOneRecord$", edits: []edit{
			{"internal/disk/read.go", "at, n = in.next(from, &record, &r.before)", "at, n = 0, 0"},
		}},
		{name: "keys build on their own records", pkg: disk, test: "^Test(ADamageCostsOneRecord|Damages)$", edits: []edit{
			{"internal/disk/read.go", "if k.Replaces || r.last[k.Key] == r.before[i] {", "if i >= 0 {"},
		}},
		{name: "a torn end is no damage", pkg: disk, test: "^TestATornEndIsNoDamage$", edits: []edit{
			{"internal/disk/read.go", "if n == 0 && last && in.failed == 0 {", "if false {"},
		}},
		{name: "a sector that cannot be read is no torn end", pkg: disk,
			test: "^TestASectorThatCannotBeReadCostsItsRecords$", edits: []edit{
				{"internal/disk/read.go", "if n == 0 && last && in.failed == 0 {", "if n == 0 && last {"},
			}},
		{name: "a sector that cannot be read costs its records", pkg: disk,
			test: "^TestASectorThatCannotBeReadCostsItsRecords$", edits: []edit{
				{"internal/disk/read.go", "			at += sector - 1\n			continue\n", "			return 0, 0\n"},
			}},
		{name: "a number without room is no segment's", pkg: disk, test: "^TestANumberWithoutRoomIsTold$", edits: []edit{
			{"internal/disk/store.go", "if number > mostNumber || len(s.segments) > 0 && number-s.last().number > mostGap {",
				"if number == 1<<64-1 {"},
			{"internal/disk/store.go", "if number > mostNumber-mostGap {", "if false {"},
		}},
		{name: "forged records are read a few times", pkg: disk, test: "^TestForgedRecordsWithoutEnd$", edits: []edit{
			{"internal/disk/read.go", "*before); err != nil {\n		in.wasted += int64(length)\n", "*before); err != nil {\n"},
		}},
		{name: "an instant far ahead is refused", pkg: "./cluster", test: "^TestForgedInstantsAreTold$", edits: []edit{
			{"cluster/restore.go", "case i.last != 0 && at > max(i.now, i.last)+farAhead:", "case false:"},
		}},
		{name: "an instant that cannot be counted from is refused", pkg: "./cluster", test: "^TestForgedInstantsAreTold$",
			edits: []edit{{"cluster/restore.go", "case at < 0 || at > lastInstant:", "case false:"}}},
		{name: "a segment that is gone is removed", pkg: disk, test: "^TestAfterAnError$", edits: []edit{
			{"internal/disk/store.go", " && !errors.Is(err, fs.ErrNotExist)", ""},
		}},
		{name: "a file that was not removed is replaced", pkg: disk, test: "^TestAfterAnError$", edits: []edit{
			{"internal/disk/store.go", "if errors.Is(err, fs.ErrExist) {", "if false {"},
		}},
		{name: "records end by their size", pkg: "./internal/cluster", test: "^TestRecordsEndByTheirSize$", edits: []edit{
			{"internal/cluster/save.go", "savedAtOnce-n, recordBytes)",
				"savedAtOnce-n, 1<<30)"},
		}},
		{name: "ids are saved with a partition", pkg: "./internal/cluster", test: "^TestRecordsEndByTheirSize$",
			edits: []edit{
				{"internal/cluster/save.go", "if saved.Batch.Kind == peer.Snapshot {", "if false {"},
			}},
		{name: "what was charged is saved", pkg: core, test: "^TestWhatWasChargedIsSaved$", edits: []edit{
			{"limiter/table/found.go", "		k.slot.class |= charged\n", ""},
		}},
		{name: "new counters are saved", pkg: core, test: "^TestWhatWasChargedIsSaved$", edits: []edit{
			{"limiter/table/decide.go", "			s.class |= charged\n", ""},
		}},
		{name: "marks move with words", pkg: "./limiter/table", test: "^TestExportCharged$", edits: []edit{
			{"limiter/table/words.go", "class|s.class&charged", "class"},
		}},
		{name: "what a check converts is copied", pkg: "./chaos/sim", test: "^TestWhatAChargeOfNothingChangesIsCopied$",
			edits: []edit{{"internal/cluster/decide.go", "	d.touched(t, charge, nil, charge.Converted) // whatever",
				"	// whatever"}}},
		{name: "a block of a rule in shadow is copied", pkg: "./chaos/sim",
			test:  "^TestWhatAChargeOfNothingChangesIsCopied$",
			edits: []edit{{"internal/cluster/decide.go", " && !arith.BlockBegan(answer) &&", " &&"}}},
		{name: "the id of a check that is denied in shadow is copied", pkg: "./chaos/sim",
			test:  "^TestWhatAChargeOfNothingChangesIsCopied$",
			edits: []edit{{"internal/cluster/decide.go", "(id == nil || q.Charge.Peek) {", "true {"}}},
		{name: "what may recover sooner is listed for the disk", pkg: replica, test: "^TestChangesForTheDiskAlone$",
			edits: []edit{{save, "if cost == 0 || id != nil && (id.Hold > 0 || id.Rate > 0 || id.Lent) {", "if false {"}}},
		{name: "what was charged before an ownership ended is saved", pkg: replica, test: "^TestChangesForTheDiskAlone$",
			edits: []edit{{"internal/cluster/replica/heir.go", "		p.saving.ended(&own.changes)\n", ""}}},
		{name: "partitions that start empty are told", pkg: "./cluster", test: "^TestPartitionsThatStartEmptyAreTold$",
			edits: []edit{
				{"cluster/restore.go", "	k.filled = seen.last > 0\n", ""},
			}},
		{name: "names last", pkg: disk, test: "^TestNamesLast$", edits: []edit{
			{"internal/disk/store.go", "	if removed {\n		return s.files.SyncNames()\n	}", "	_ = removed"},
		}},
		{name: "a clock that was ahead is caught up", pkg: "./cluster", test: "^TestAClockThatIsAheadIsCaughtUp$",
			edits: []edit{{"cluster/restore.go", "c.ahead-(now-c.since)/slower", "c.ahead"}}},
		{name: "a grant leaves when it lasts", pkg: core, test: "^TestAGrantLeavesWhenItLasts$", edits: []edit{
			{"internal/cluster/part.go", "if keeps == nil || !p.closed || !e.Answer.Granted {", "if true {"},
		}},
	}
}
