package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "github.com/weirlimit/weir/proto/gubernator/v1"
)

// permissionsAsked are those that the table in docs/access.md has for other protocols.
var permissionsAsked = []string{"check", "peek", "reset", "refund", "limits", "rule"}

// documentedPermissions returns the rows of docs/access.md for other protocols: what each needs,
// by the protocol and what is asked.
func documentedPermissions(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	rows := regexp.MustCompile("(?m)^\\| (Gubernator|Envoy|Redis) \\| (.*) \\| (`.*`) \\|$")
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		out[row[1]+" "+row[2]] = strings.Split(strings.ReplaceAll(row[3], "`", ""), ", ")
	}
	return out
}

// portCall asks something by a protocol, and reports whether the identity with a token is refused by
// the code of that protocol.
type portCall func(t *testing.T, s *Server, token string) (refused bool)

func askedOfGubernator(change func(*pb.RateLimitReq)) portCall {
	return func(t *testing.T, s *Server, token string) bool {
		t.Helper()
		r := &pb.RateLimitReq{Name: "n", UniqueKey: token[len(token)-20:], Hits: 1, Limit: 9, Duration: 60_000}
		change(r)
		addr := s.Addresses().Gubernator
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		out, err := pb.NewV1Client(dial(t, addr)).GetRateLimits(ctx, &pb.GetRateLimitsReq{Requests: []*pb.RateLimitReq{r}})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetResponses()[0].GetError() != ""
	}
}

func askedOfEnvoy(change func(*ratelimit.RateLimitDescriptor)) portCall {
	return func(t *testing.T, s *Server, token string) bool {
		t.Helper()
		d := &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user",
			Value: token[len(token)-20:]}}}
		change(d)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		_, err := rls.NewRateLimitServiceClient(dial(t, s.Addresses().Envoy)).ShouldRateLimit(ctx,
			&rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{d}})
		if err != nil && status.Code(err) != codes.PermissionDenied {
			t.Error(err)
		}
		return err != nil
	}
}

func askedOfRedis(commands ...string) portCall {
	return func(t *testing.T, s *Server, token string) bool {
		t.Helper()
		c := redisClient(t, &redis.Options{Addr: s.Addresses().Redis, Password: token})
		refused := 0
		for _, command := range commands {
			var args []any
			for word := range strings.FieldsSeq(command) {
				args = append(args, word)
			}
			switch err := c.Do(t.Context(), args...).Err(); {
			case err == nil, strings.HasPrefix(err.Error(), "ERR the request is settled"):
			case strings.HasPrefix(err.Error(), "NOPERM"):
				refused++
			default:
				t.Errorf("%s: %v", command, err)
			}
		}
		if refused > 0 && refused < len(commands) {
			t.Errorf("%d of %q are refused", refused, commands)
		}
		return refused > 0
	}
}

// TestPermissionsOfOtherProtocols: what is asked over Gubernator's, Envoy's and Redis's protocol takes the
// permissions that docs/access.md has, all of them and no others. What is refused counts nothing,
// and is in the audit.
func TestPermissionsOfOtherProtocols(t *testing.T) {
	const script = "f52a5b566060d79fd321d695df55bc918339c4aa" // of redis_rate
	calls := map[string]portCall{
		"Gubernator hits":   askedOfGubernator(func(*pb.RateLimitReq) {}),
		"Gubernator 0 hits": askedOfGubernator(func(r *pb.RateLimitReq) { r.Hits = 0 }),
		"Gubernator `RESET_REMAINING`": askedOfGubernator(func(r *pb.RateLimitReq) {
			r.Behavior = pb.Behavior_RESET_REMAINING
		}),
		"Gubernator negative hits": askedOfGubernator(func(r *pb.RateLimitReq) { r.Hits = -1 }),
		"Envoy a descriptor":       askedOfEnvoy(func(*ratelimit.RateLimitDescriptor) {}),
		"Envoy a descriptor with `hits_addend: 0`": askedOfEnvoy(func(d *ratelimit.RateLimitDescriptor) {
			d.HitsAddend = wrapperspb.UInt64(0)
		}),
		"Envoy a descriptor with `is_negative_hits`": askedOfEnvoy(func(d *ratelimit.RateLimitDescriptor) {
			d.IsNegativeHits = true
		}),
		"Envoy a descriptor with a `limit`": askedOfEnvoy(func(d *ratelimit.RateLimitDescriptor) {
			d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: typev3.RateLimitUnit_YEAR}
		}),
		"Redis `CL.THROTTLE`, `EVAL`, `EVALSHA`": askedOfRedis("CL.THROTTLE k 1 1 86400",
			"EVALSHA "+script+" 1 k 10 10 1 1"),
		"Redis `WEIR.CHECK`":             askedOfRedis("WEIR.CHECK /t USER ada"),
		"Redis `WEIR.CHECK` with `RULE`": askedOfRedis("WEIR.CHECK /t USER ada RULE towns"),
		"Redis `WEIR.CHECK` with `HOLD`": askedOfRedis("WEIR.CHECK /t USER eve ID 1 HOLD 60000"),
		"Redis `WEIR.PEEK`":              askedOfRedis("WEIR.PEEK /t USER ada"),
		"Redis `WEIR.SETTLE`, `WEIR.CANCEL`, `WEIR.EXTEND`": askedOfRedis("WEIR.SETTLE /t USER eve ID 2 ACTUAL 1",
			"WEIR.CANCEL /t USER eve ID 3", "WEIR.EXTEND /t USER eve ID 2 HOLD 1000"),
		"Redis `WEIR.RESET`":               askedOfRedis("WEIR.RESET /t USER ada"),
		"Redis `DEL`, `UNLINK`, `FLUSHDB`": askedOfRedis("DEL k", "UNLINK k", "FLUSHDB"),
	}
	needs := documentedPermissions(t)
	for call := range calls {
		if needs[call] == nil {
			t.Errorf("docs/access.md does not say what %q needs", call)
		}
	}
	c, _ := plain()
	c.Rules = []byte("version: 1\nrules:\n  - {name: towns, match: {path: ^/t$}, key: [user], limits: [{limit: 100, " +
		"window: 1d}]}\n")
	var identities strings.Builder
	identities.WriteString("tokens:\n  - {issuer: \"https://id.example.com\", audience: weir, algorithms: [ES256], " +
		"keys: keys.pem}\nidentities:\n")
	named := func(may []string) string { return "may-" + strings.Join(may, "-") }
	known := map[string]bool{}
	add := func(may []string) {
		if name := named(may); !known[name] {
			known[name] = true
			fmt.Fprintf(&identities, "  - {name: %s, token: {subject: %s}, may: {%s}}\n", name, name,
				strings.Join(may, ": true, ")+": true")
		}
	}
	but := func(left string) []string { // all permissions but one: no other can stand in for it
		return slices.DeleteFunc(slices.Clone(permissionsAsked), func(one string) bool { return one == left })
	}
	for _, one := range permissionsAsked {
		add(but(one))
	}
	for _, of := range needs {
		add(of)
	}
	c.Permissions = file(t, identities.String())
	audit, tokens := newAuditFile(t), newIssuer(t, c.Permissions)
	c.Audit, c.RedisListen = audit.name, "127.0.0.1:0"
	c.Gubernator = GubernatorConfig{Addr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0"}
	c.Envoy, _ = envoyConfig(t, envoyFile)
	s := start(t, c)
	for call, of := range needs {
		ask := calls[call]
		if ask == nil {
			t.Errorf("nothing here asks for %q, which docs/access.md has", call)
			continue
		}
		for _, one := range of {
			caller, before := named(but(one)), s.Node().Stats().Keys
			if !ask(t, s, tokens.token(caller)) {
				t.Errorf("%s is not refused to a caller without %q", call, one)
				continue
			}
			if n := s.Node().Stats().Keys; n != before {
				t.Errorf("%s without %q: there are %d counters, and were %d", call, one, n, before)
			}
			line := audit.line()
			for line["outcome"] != "refused" || line["caller"] != caller ||
				line["over"] != strings.ToLower(strings.Fields(call)[0]) {
				line = audit.line() // of what was done, or of other commands of the call before
			}
		}
		if ask(t, s, tokens.token(named(of))) {
			t.Errorf("%s is refused to a caller with %q", call, of)
		}
	}
}
