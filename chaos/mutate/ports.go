package main

// ofPorts returns the protections of the ports against clients and strangers.
func ofPorts() []mutation {
	const public, peers, caller = "./transport", "./internal/peerlink", "./client"
	return []mutation{
		{name: "a bound of connections of one address", pkg: "./internal/listen", test: "^TestConnectionsPerAddress$",
			edits: []edit{
				{"internal/listen/bounded.go", "	case l.mostFrom >= 0 && c.from.IsValid() && ",
					"	case l.mostFrom < 0 && c.from.IsValid() && "},
			}},
		{name: "few addresses keep nobody out", pkg: public, test: "^TestFewAddressesKeepNobodyOut$", edits: []edit{
			{"internal/listen/bounded.go", "		if now.Sub(l.searched) >= searchPause {\n", "		if false {\n"},
		}},
		{name: "denied checks that are charged make keys", pkg: "./internal/frontend", test: "^TestDeniedChecksMakeKeys$",
			edits: []edit{
				{"internal/frontend/keys.go", "	return l.Limit.CountRejected() == limiter.CountAll\n", "	return false\n"},
			}},
		{name: "a body that does not come keeps no probe out", pkg: public, test: "^TestUnfinishedBodiesApart$",
			edits: []edit{
				{"internal/listen/apart.go", "if r.Body = was; !rest.over {", "if r.Body = was; false {"},
			}},
		{name: "a token over gRPC is not overlooked", pkg: "./internal/listen", test: "^TestShown$", edits: []edit{
			{"internal/listen/shown.go", "call.Header[overgrpc.Authorization]; len(shown) > 0 {",
				"call.Header[overgrpc.Authorization]; len(shown) < 0 {"},
		}},
		{name: "a call has few header fields", pkg: "./internal/listen", test: "^TestNoteFew$", edits: []edit{
			{"internal/listen/shown.go", "	if n > mostFields {\n", "	if n < 0 {\n"},
		}},
		{name: "Envoy's calls have long header fields", pkg: "./cmd/node/internal/server",
			test: "^TestEnvoysCallsHaveLongHeaders$", edits: []edit{
				{"transport/server.go", "grpc.MaxHeaderListSize(uint32(o.MaxHeaderBytes))",
					"grpc.MaxHeaderListSize(maxHeaderBytes)"},
			}},
		{name: "a bound of streams of a connection", pkg: public, test: "^TestStreamsPerConnection$", edits: []edit{
			{"transport/server.go", "		grpc.MaxConcurrentStreams(uint32(o.MaxStreams)),\n", ""},
		}},
		{name: "an end of idle streams", pkg: public, test: "^TestStalledStreams$/^no_message$", edits: []edit{
			{"internal/listen/conn.go", "	return s.in.begun == 0 || s.in.begun", "	return s.in.begun"},
		}},
		{name: "an end of half messages", pkg: public, test: "^TestStalledStreams$/^half_a_message$", edits: []edit{
			{"internal/listen/watched.go", "		if !s.ending && s.owed() && now-s.since > patience {\n",
				"		if !s.ending && s.owed() && s.half == 0 && now-s.since > patience {\n"},
		}},
		{name: "a bound of half messages", pkg: public, test: "^TestTooManyHalfMessages$", edits: []edit{
			{"internal/listen/watched.go", "		if c.of.tooMuch() {\n", "		if false {\n"},
		}},
		{name: "an end of trickled frames", pkg: public, test: "^TestTrickleInAFrame$", edits: []edit{
			{"internal/listen/watched.go", "	stuck := len(c.reset) > 0 && ", "	stuck := len(c.reset) < 0 && "},
		}},
		{name: "an end of answers that are not read", pkg: public, test: "^TestStalledStreams$/^an_answer_that_is_not_read$",
			edits: []edit{
				{"internal/listen/conn.go", " || s.in.begun > s.done() || s.out.left > 0\n",
					" || s.in.half() || s.out.left > 0\n"},
			}},
		{name: "an answer that is read byte by byte", pkg: "./internal/listen", test: "^TestReadByteByByte$", edits: []edit{
			{"internal/listen/watched.go", "s.sent >= leastRead {", "s.sent >= 0 {"},
		}},
		{name: "a deadline of writes", pkg: "./internal/listen", test: "^TestDeafConnection$", edits: []edit{
			{"internal/listen/watched.go", "	if w := c.writing.Load(); w > 0 && ", "	if w := c.writing.Load(); w < 0 && "},
		}},
		{name: "an age of connections", pkg: public, test: "^TestConnectionsAge$", edits: []edit{
			{"transport/server.go", "			MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace",
				"			MaxConnectionAgeGrace"},
		}},
		{name: "a stream ends before its connection", pkg: caller, test: "^TestConnectionsOfAnAge$", edits: []edit{
			{"transport/drain.go", "		aged := time.NewTimer(age/2 + rand.N(age/2+1))\n",
				"		aged := time.NewTimer(100*age + rand.N(age))\n"},
		}},
		{name: "silent connections keep no probe out", pkg: "./internal/listen", test: "^TestApartConnections$",
			edits: []edit{
				{"internal/listen/apart.go", "bool { return !o.serving && (!ofAddress", "bool { return o == nil && (!ofAddress"},
			}},
		{name: "unread answers keep no probe out", pkg: public, test: "^TestUnreadAnswersApart$", edits: []edit{
			{"internal/listen/apart.go", "			if o.serving && !o.writing.IsZero() && ",
				"			if o == nil && !o.writing.IsZero() && "},
		}},
		{name: "requests that are alike are of one tenant", pkg: "./internal/weirwire",
			test: "^TestRequestsThatAreAlike$", edits: []edit{
				{"internal/weirwire/columns.go", " && have.Tenant == r.Tenant", ""},
			}},
		{name: "requests that are alike are of one caller", pkg: "./internal/weirwire",
			test: "^TestRequestsThatAreAlike$", edits: []edit{
				{"internal/weirwire/columns.go", " && have.Caller == r.Caller", ""},
			}},
		{name: "what is no message is charged", pkg: public, test: "^TestWhatIsNoMessageSpends$", edits: []edit{
			{"transport/service.go", "	if over := by.Spend(1, h.Size()); over != nil {\n",
				"	if over := error(nil); over != nil {\n"},
		}},
		{name: "no probe stays", pkg: public, test: "^TestProbesDoNotStay$", edits: []edit{
			{"transport/server.go", "	a.http.SetKeepAlivesEnabled(false) // no probe occupies a connection\n", ""},
		}},
		{name: "a short time for headers of probes", pkg: public, test: "^TestHalfHeadersApart$", edits: []edit{
			{"transport/apart.go", "const apartHeaderTimeout = time.Second\n", "const apartHeaderTimeout = time.Hour\n"},
		}},
		{name: "parts are counted first", pkg: public, test: "^TestPartsAreCountedFirst$", edits: []edit{
			{"internal/weirwire/count.go", "max(p.Attributes, p.Actual) > MaxAttributes || p.Limits > limiter.MaxLimits ||",
				"p.Attributes > MaxAttributes && p.Limits > limiter.MaxLimits ||"},
		}},
		{name: "room for large messages", pkg: "./internal/listen", test: "^TestRoom$", edits: []edit{
			{"internal/listen/room.go", "	case r.used+more > r.Most:\n", "	case r.used+more > 16*r.Most:\n"},
		}},
		{name: "room for short limits of requests", pkg: "./limiter/table", test: "^TestLongRequestLimitsAreBounded$",
			edits: []edit{
				{"limiter/table/registry.go", "	case long && r.long >= maxLongLimits, o == ofRequest", "	case o == ofRequest"},
			}},
		{name: "short names to watch", pkg: public, test: "^TestWatchedNames$", edits: []edit{
			{"transport/server.go", "n > maxServiceBytes {", "n > 1<<20 {"},
		}},
		{name: "strangers make room for members", pkg: peers, test: "^TestSilentConnectionsKeepNobodyOut$", edits: []edit{
			{"internal/peerlink/conn.go", "	if p.waiting >= maxWaiting {\n", "	if p.waiting >= 100*maxWaiting {\n"},
		}},
		{name: "strangers are dialled in turn", pkg: peers, test: "^TestStrangersWaitForTheirTurn$", edits: []edit{
			{"internal/peerlink/remote.go", "ready && !r.met && turn.IsZero() {",
				"ready && !r.met && turn.IsZero() && now.IsZero() {"},
		}},
		{name: "invented nodes keep no member out", pkg: "./internal/cluster/gossip",
			test: "^TestInventedNodesKeepNoMemberOut$", edits: []edit{
				{"internal/cluster/gossip/delegate.go", "	if _, was := g.roster.gone[name]; !was {\n",
					"	if _, was := g.roster.gone[name]; was || !was {\n"},
			}},
		{name: "transactions over the Redis protocol have shares", pkg: "./internal/resp",
			test: "^TestTransactionsHaveShares$", edits: []edit{
				{"internal/resp/multi.go", "c.of.large.Take(listen.Origin(c.RemoteAddr()), size)",
					"c.of.large.Take(listen.Origin(nil), size)"},
			}},
		{name: "long commands over the Redis protocol have shares", pkg: "./internal/resp",
			test: "^TestTransactionsHaveShares$", edits: []edit{
				{"internal/resp/input.go", "large.Take(from, ", "large.Take(netip.Prefix{}, "},
			}},
		{name: "transactions over the Redis protocol end", pkg: "./internal/resp", test: "^TestTransactionsEnd$",
			edits: []edit{
				{"internal/resp/conn.go", "within = min(within, max(0, c.multi.until.Sub(now)))", "_ = c.multi.until"},
			}},
		{name: "no commands in requests of browsers", pkg: "./internal/resp", test: "^TestRequestsOfBrowsers$", edits: []edit{
			{"internal/resp/commands.go", "	case k == nil && isHTTP(args[0]):\n", "	case k == nil && args == nil:\n"},
		}},
		{name: "an invalid request is denied in HAProxy", pkg: "./internal/spoe", test: "^TestQuestions$", edits: []edit{
			{"internal/spoe/server.go", "	case http.StatusTooManyRequests, http.StatusBadRequest:\n",
				"	case http.StatusTooManyRequests:\n"},
		}},
		{name: "little is read before the proof", pkg: peers, test: "^TestLittleIsReadBeforeTheProof$", edits: []edit{
			{"internal/peerlink/conn.go", "	earlyBytes = 4 << 10\n", "	earlyBytes = 64 << 20\n"},
		}},
	}
}
