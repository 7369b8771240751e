package main

// ofEnvoy returns those of Envoy's quota service: each of the traps that its client sets, and the bounds.
func ofEnvoy() []mutation {
	const stream, service = "./internal/envoy/quota", "./internal/envoy"
	const machine, wire = "internal/envoy/quota/stream.go", "internal/envoy/quota/wire.go"
	return []mutation{
		{name: "Envoy's demand is by the server's clock", pkg: stream, test: "^TestDemandIsByTheServersClock$",
			edits: []edit{{machine, "	passed := now - b.measured\n", "	passed := max(u.Elapsed, smooth/20)\n"}}},
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
	}
}
