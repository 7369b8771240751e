package main

// ofAccess returns the protections of permissions and of the audit.
func ofAccess() []mutation {
	const identities = "./internal/access"
	return []mutation{
		{name: "a refusal names no rule of others", pkg: identities, test: "^TestPermissionOfEachCheck$", edits: []edit{
			{"rules/scope.go", "named: r.Rule != \"\"}", "named: true}"},
		}},
		{name: "the audit has refusals by rules that match", pkg: identities, test: "^TestAudit$", edits: []edit{
			{"transport/stream.go", "	s.audited.part(ctx, nil, t.errs)\n", ""},
			{"transport/grpc.go", "	s.audited.part(ctx, c.refused, c.errs)\n", "	s.audited.part(ctx, c.refused, nil)\n"},
			{"transport/front.go", "		refusedPart(w, b.errs[i])\n", ""},
		}},
		{name: "strangers keep nothing out of the audit", pkg: "./internal/audit", test: "^TestStrangersKeepNothingOut$",
			edits: []edit{
				{"internal/audit/audit.go", "		return handshakes\n", "		k = refused\n"},
				{"internal/audit/audit.go", "		k += strangersDone - done\n", ""},
			}},
		{name: "no caller hides others in the audit", pkg: "./internal/audit", test: "^TestNoCallerHidesOthers$",
			edits: []edit{
				{"internal/audit/audit.go", "	if own != nil {\n", "	if own != nil && now < 0 {\n"},
			}},
		{name: "acts of administration are not left out of the audit", pkg: "./internal/audit",
			test: "^TestActsAreNotLeftOut$", edits: []edit{
				{"internal/audit/audit.go", "		return acts\n", "		k = done\n"},
			}},
		{name: "long permissions are counted first", pkg: identities, test: "^TestEffort$", edits: []edit{
			{"internal/access/tree.go", "	return parts > maxParts\n", "	return parts < 0\n"},
		}},
		{name: "no tenant fills the table", pkg: "./limiter/table", test: "^TestNoTenantFillsTheTable$", edits: []edit{
			{"limiter/table/tenants.go", "return own <= tenantTimes*free", "return own >= 0 || free > 0"},
		}},
		{name: "no tenant pushes others out of the lists of top keys", pkg: "./limiter/table",
			test: "^TestNoTenantPushesOthersOutOfLists$", edits: []edit{
				{"limiter/table/top.go", "		least, had = t.place(keyOfTop(lo, l))\n", "		had = t.count[least]\n"},
			}},
		{name: "what a copy has is no tenant's", pkg: "./limiter/table", test: "^TestTenantsAreCounted$", edits: []edit{
			{"limiter/table/move.go", "		p.belongsAll(1)\n", ""},
		}},
		{name: "one identity's limits of requests are bounded", pkg: "./internal/access",
			test: "^TestRequestLimitsHaveShares$", edits: []edit{
				{"rules/own.go", `if r.Tenant == "" && r.Caller != "" {`, `if r.Tenant == r.Caller {`},
			}},
		{name: "one tenant's time zones are bounded", pkg: "./limiter/table", test: "^TestTenantsShareZones$", edits: []edit{
			{"limiter/table/registry.go", "(o == ofRequest || o == ofZone) && !r.admits(o, by, long)",
				"o == ofRequest && !r.admits(o, by, long)"},
		}},
		{name: "an unknown plan counts by else", pkg: "./rules", test: "^TestNumbersByPlan$", edits: []edit{
			{"rules/numbered.go", "return made[name]", "for _, v := range made { return v }; return nil"},
		}},
		{name: "a stated number is bounded", pkg: "./rules", test: "^TestStatedNumbers$", edits: []edit{
			{"rules/numbered.go", "return min(n, most)", "return n"},
		}},
		{name: "ids belong to who gives them", pkg: "./internal/access", test: "^TestIdentitiesShareNoReservation$",
			edits: []edit{
				{"rules/ids.go", `if r.Caller != "" {`, `if r.ID == "" {`},
			}},
		{name: "an id of a stream holds for nobody who may not settle", pkg: "./transport",
			test: "^TestWhoHoldsByARuleMaySettle$", edits: []edit{
				{"transport/stream.go", "	if len(in.Ids) > 0 {\n", "	if false {\n"},
			}},
		{name: "a rule in shadow refuses no hold", pkg: "./internal/frontend", test: "^TestWhoHoldsMaySettle$", edits: []edit{
			{"rules/ids.go", "				case r.Rule != \"\" || !h.bars.limiter.Shadow:", "				case h.bars != nil:"},
		}},
		{name: "a call of administration needs its permission", pkg: "./internal/console",
			test: "^TestCallsNeedPermissions$", edits: []edit{
				{"transport/admincall.go", "	if by.Err != nil {\n		err = by.Err\n	}\n", ""},
			}},
		{name: "what a call has done is audited though its client is gone", pkg: "./transport",
			test: "^TestACallStandsWhoseClientIsGone$", edits: []edit{
				{"transport/admincall.go", "		_, _ = w.Write(reply)", "		_, err = w.Write(reply)"},
			}},
		{name: "calls that only read are not audited", pkg: "./internal/console", test: "^TestOverridesOverGRPC$",
			edits: []edit{
				{"transport/admin.go", "(of.call == nil || of.Changes)", "(of.call == nil || of.call != nil)"},
			}},
		{name: "calls of administration keep nobody out", pkg: "./internal/console", test: "^TestCallsKeepNobodyOut$",
			edits: []edit{
				{"internal/listen/apart.go", "		if !ok || r.ProtoMajor > 1 {\n", "		if !ok {\n"},
			}},
		{name: "no token of the future", pkg: "./middleware/identity", test: "^TestTokensRefused$", edits: []edit{
			{"middleware/identity/tokens.go", " jwt.WithIssuedAt(),", ""},
		}},
	}
}
