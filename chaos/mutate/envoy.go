package main

// ofEnvoy returns those of Envoy's quota service: each of the traps that its client sets, and the bounds.
func ofEnvoy() []mutation {
	const stream, service = "./internal/envoy/quota", "./internal/envoy"
	const machine, wire = "internal/envoy/quota/stream.go", "internal/envoy/quota/wire.go"
	return []mutation{
		{name: "Envoy's demand is by the server's clock", pkg: stream, test: "^TestDemandIsByTheServersClock$",
			edits: []edit{
				{"internal/envoy/quota/bucket.go", "	passed := now - b.measured\n", "	passed := max(u.Elapsed, smooth/20)\n"},
			}},
		{name: "Envoy reads whole seconds of a time to live", pkg: stream, test: "^TestMessagesAreWhatEnvoyReads$",
			edits: []edit{{machine, "	minTTL = 2 * limiter.Second\n", "	minTTL = limiter.Second / 2\n"}}},
		{name: "Envoy divides by whole seconds of an interval", pkg: stream, test: "^TestMessagesAreWhatEnvoyReads$",
			edits: []edit{{wire, "appendDuration(bucket, fieldInterval, limiter.Second)",
				"appendDuration(bucket, fieldInterval, limiter.Second/2)"}}},
		{name: "Envoy compares no intervals", pkg: stream, test: "^TestMessagesAreWhatEnvoyReads$", edits: []edit{
			{wire, "appendNumber(bucket, fieldFill, uint64(a.Rate))", "appendNumber(bucket, fieldFill, 1)"},
			{wire, "appendDuration(bucket, fieldInterval, limiter.Second)",
				"appendDuration(bucket, fieldInterval, limiter.Second*limiter.Tick(1+200/max(1, a.Rate)))"},
		}},
		{name: "Envoy ignores what has no strategy", pkg: stream, test: "^TestMessagesAreWhatEnvoyReads$", edits: []edit{
			{wire, "			strategy = protowire.AppendTag(strategy, fieldBlanket, protowire.VarintType)\n" +
				"			strategy = protowire.AppendVarint(strategy, rule)\n", "			_ = rule\n"},
		}},
		{name: "Envoy's bucket keeps its size", pkg: stream, test: "^TestRenewalsHaveOneBurst$", edits: []edit{
			{machine, "	if b.asked = now; !b.lives(now, Slack) {\n", "	if b.asked = now; b.rate != 2 {\n"},
		}},
		{name: "Envoy's bucket begins full after its end", pkg: stream, test: "^TestWhatBeginsFullIsAnotherSlice$",
			edits: []edit{{machine, "		if b.slice.lent || b.slice.name == 0 {\n", "		if b.slice.name == 0 {\n"}}},
		{name: "Envoy without an assignment is told to deny", pkg: stream, test: "^TestDeniesWhatIsNotAssigned$",
			edits: []edit{{machine, "	if g.Kind == DenyAll && (b.lives(now, Slack) ||", "	if g.Kind == DenyAll && (true ||"}}},
		{name: "Envoy reports a bucket for ever", pkg: stream, test: "^TestAbandonsWhatIsIdle$", edits: []edit{
			{machine, "		case now-b.wanted >= idle:\n", "		case now-b.wanted >= 60*idle:\n"},
		}},
		{name: "a silent Envoy's share comes back", pkg: stream, test: "^TestTheShareOfADeadEnvoy$", edits: []edit{
			{machine, "b.lowered[1], 0; lately {", "b.lowered[1], 0; true {"},
		}},
		{name: "what a stream of Envoy keeps is bounded", pkg: stream, test: "^TestHostileReports$", edits: []edit{
			{machine, "			if len(s.buckets) >= MaxBuckets || ", "			if "},
		}},
		{name: "what Envoy is assigned is told in time", pkg: service, test: "^TestQuotasAreRead$", edits: []edit{
			{"internal/envoy/quotaask.go", "		case <-ctx.Done():\n			return errLate\n		}\n		data = nil",
				"		}\n		data = nil"},
		}},
		{name: "both services of Envoy are within one limit", pkg: service, test: "^TestQuotasOfThreeEnvoys$",
			edits: []edit{{"internal/envoy/quotaask.go", "key: keyOf(s.domain, counted)}", "key: keyOf(\"q\", counted)}"}}},
		{name: "a bucket of Envoy has the counter of its descriptor", pkg: service, test: "^TestQuotasShareCounters$",
			edits: []edit{{"internal/envoy/quotaask.go", "key: keyOf(s.domain, counted)}", "key: keyOf(\"q\", counted)}"}}},
		{name: "a holder charges at most a capacity beyond", pkg: "./limiter/table", test: "^TestWhatAHolderSaysIsBounded$",
			edits: []edit{{"limiter/table/amend.go", "			if a.Lent {\n", "			if a.Lent && now < 0 {\n"}}},
		{name: "the owner hears of what a holder charges", pkg: "./internal/cluster",
			test: "^TestWhatAHolderSaysAcrossMembers$", edits: []edit{
				{"internal/cluster/wire.go", "			Lent: hold.Lent}\n", "		}\n"},
			}},
		{name: "false reports shut no limit", pkg: service, test: "^TestFalseReportsShutNoLimit$",
			edits: []edit{{"internal/envoy/quotaask.go", "r.ID, r.Lent = rand.Text(), true\n", "r.ID = rand.Text()\n"}}},
		{name: "a bucket is charged as often as it is asked about", pkg: stream, test: "^TestABucketIsChargedOnce$",
			edits: []edit{{machine, "		b.beyond = min(add(b.beyond, ",
				"		out.Beyond = append(out.Beyond, Beyond{b.id, b.beyond})\n		b.beyond = min(add(0, "},
				{machine, "func (s *Stream) check(now limiter.Tick, b *bucket, u *Usage) {",
					"func (s *Stream) check(now limiter.Tick, b *bucket, u *Usage, out *Out) {"},
				{machine, "		s.check(now, b, u)\n", "		s.check(now, b, u, out)\n"}}},
		{name: "no caller takes the room of all", pkg: service, test: "^TestQuotasLeaveRoomForOthers$", edits: []edit{
			{"internal/envoy/quota/room.go", "	if own > timesLeft*(MaxRoom-taken) {\n", "	if taken > MaxRoom {\n"},
		}},
		{name: "a report needs no answer", pkg: service, test: "^TestReportsNeedNoAnswer$", edits: []edit{
			{"internal/envoy/quotas.go", "			m.room.Handled()\n", "			m.room.Release()\n"},
		}},
		{name: "a caller has so many streams of quotas", pkg: service, test: "^TestQuotaStreamsAreBounded$", edits: []edit{
			{"internal/envoy/quotas.go", "	if !room.Open() {\n", "	if room.Open(); false {\n"},
		}},
		{name: "statistics of quotas never fall", pkg: service, test: "^TestQuotaStatisticsNeverFall$", edits: []edit{
			{"internal/envoy/quotas.go", "was+min(n, math.MaxUint64-was)", "was+min(n, math.MaxUint64)"},
		}},
		{name: "what passes is counted with stop-when-over", pkg: service, test: "^TestStopWhenDenied$", edits: []edit{
			{"internal/envoy/decide.go", "	return err == nil && c.denies(items), err\n",
				"	return slices.ContainsFunc(items, func(it item) bool { return it.over }), err\n"},
		}},
		{name: "what comes back is told", pkg: service, test: "^TestWhatIsTakenBackIsTold$", edits: []edit{
			{"internal/envoy/decide.go", "append(errs, c.uncredited(ctx, taken))", "append(errs, nil)"},
		}},
		{name: "a status is of its own descriptor", pkg: service, test: "^TestIDsOfSharedDescriptors$", edits: []edit{
			{"internal/envoy/decide.go", "		it := items[l.Key]\n", "		it := items[i]\n"},
		}},
		{name: "who is denied for want of room may not ask at once", pkg: "./internal/front",
			test: "^TestResetOfANewKeyWithoutRoom$", edits: []edit{
				{"internal/front/header.go", "	return max(l.ResetAfter, l.RetryAfter)\n", "	return l.ResetAfter\n"},
			}},
		{name: "nor by a handler's header", pkg: "./middleware/httplimit", test: "^TestResetEpochOfWhoHasNoRoom$",
			edits: []edit{
				{"middleware/httplimit/fields.go", "front.Reset(n)", "n.ResetAfter"},
			}},
		{name: "a known key is no new one", pkg: "./internal/frontend", test: "^TestWhatDecidesSpendsKeys$", edits: []edit{
			{"internal/frontend/keys.go", "max(1, a.Keys)-a.Known)", "max(1, a.Keys))"},
		}},
		{name: "a settlement says which keys it knows", pkg: "./limiter/table", test: "^TestASettlementSaysWhatIsKnown$",
			edits: []edit{{"limiter/table/amend.go", "			out.Known++\n", ""}}},
	}
}
