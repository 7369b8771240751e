package archtest

// row is what the house says of one package.
type row struct {
	// path of the package in the module, "" for the root.
	path string
	// tree says that the packages below path belong to the row too, and may
	// import each other.
	tree bool
	// floor: a package imports only from floors below its own.
	floor int
	// knows is what the package is for.
	knows string
	// never lists what its code, tests apart, must not do.
	never []ban
}

// ban is one thing not to do. A name may end in "*", which matches the rest.
// Of imports, "ours" and "third-party" mean all of that origin, and any other
// name includes the packages below it.
type ban struct {
	kind kind
	name string
	why  string
}

// house returns the rows: what is built, and what is to come.
func house() []row {
	return []row{
		{path: "limiter/calendar", floor: -2, knows: "where calendar windows begin; the embedded time zones", never: join(
			no(imports, "windows depend on a date and the embedded time zones alone", "ours", "third-party", "os", "net",
				"context"),
			no(uses, "it reads the time zones of the machine, and deciders must agree", "time.LoadLocation"),
			clocks("a window is a function of an instant"),
			no(spawns, "a window is a function of an instant", ""),
		)},

		{path: "internal/receipt", floor: -2, knows: "what a receipt contains, which limiter hides", never: no(imports,
			"it is below the words", "ours", "third-party")},

		{path: "limiter", floor: -1, knows: "the words: limits, requests, decisions, receipts, errors", never: join(
			no(imports, "its words are those of every program that asks", "third-party"),
			no(imports, "its values are owned by whoever made them", "sync"),
			no(imports, "it never waits, so there is nothing to cancel", "context"),
			no(imports, "it does no input or output: what it has to say is in the decision", "net", "os", "log"),
			clocks("time is a parameter, so that any trace can be replayed"),
			no(spawns, "its words do nothing", ""),
		)},
		{path: "limiter/arith", floor: 0, knows: "the arithmetic of the algorithms; time is a parameter", never: join(
			no(imports, "the arithmetic must run, unchanged, in a table, in a simulator and beside a Lua script", "third-party"),
			no(imports, "it is a function of state, time and cost: whoever owns the state owns the locking", "sync"),
			no(imports, "it never waits, so there is nothing to cancel", "context"),
			no(imports, "it does no input or output: what it has to say is in the decision", "net", "os", "log"),
			clocks("time is a parameter, so that any trace can be replayed"),
			no(spawns, "it is a function of state, time and cost", ""),
		)},
		{path: "internal/peer", floor: 0, knows: "plain structs that nodes exchange", never: join(
			no(imports, "plain structs: both ends of a connection agree on them and on nothing else", "ours", "third-party",
				"sync"),
			clocks("times travel as durations, and only the owner's clock decides"),
		)},
		{path: "proto", tree: true, floor: 0, knows: "the wire, and its generated code", never: join(
			no(imports, "the wire outlives any one version of the code, so it follows none of its types", "ours"),
		)},

		{path: "internal/guard", floor: 0, knows: "panics that were recovered from: counted, logged once a minute"},
		{path: "internal/loadgen", floor: 0, knows: "callers that ask in turn or at a rate, for programs that measure",
			never: no(imports, "what is asked, and what must be true of answers, is theirs", "ours")},
		{path: "internal/procstat", floor: 0, knows: "the processor time of processes"},
		{path: "internal/records", floor: 0, knows: "records of TLS: those of one write are sent together", never: join(
			clocks("it delays nothing"),
		)},
		{path: "internal/certs", floor: 1,
			knows: "certificates, keys and authorities of files, loaded again when these change"},
		{path: "internal/certs/certstest", floor: 1, knows: "authorities and certificates for tests"},
		{path: "internal/authority", floor: 1,
			knows: "authorities of members and clients, and the certificates that they make", never: join(
				clocks("how long a certificate is valid begins at an instant that is passed in"),
			)},
		{path: "internal/dialing", floor: 2, knows: "TLS and a token of a caller's files, for its connections to nodes"},
		{path: "internal/built", floor: 0, knows: "what a program was built from: version, commit, settings", never: join(
			no(imports, "every program has it", "ours", "third-party"),
		)},
		{path: "internal/commandline", floor: 0, knows: "errors, suggestions, help and completion of command lines"},
		{path: "internal/manual", floor: 0, knows: "commands and flags -> the manual page of a program"},
		{path: "internal/disk", floor: 1, knows: "records in segments of a directory, with checksums", never: join(
			clocks("what is written names its own instant"),
			no(spawns, "who writes decides who waits", ""),
		)},
		{path: "internal/disk/disktest", floor: 2, knows: "such a directory in memory, which fails on request, for tests"},
		{path: "internal/recent", floor: 0, knows: "what was made for clients lately, in bounded number", never: join(
			no(imports, "it keeps values, and does not know what they are", "ours", "third-party"),
			clocks("now is passed in"),
		)},
		{path: "internal/address", floor: 0, knows: "addresses of callers, and what of them is counted", never: join(
			no(imports, "everything that reads an address uses it", "ours", "third-party"),
		)},
		{path: "internal/smallfile", floor: 0,
			knows: "files that configure a program: regular ones, of bounded size, with their modes"},
		{path: "internal/spelling", floor: -1, knows: "which word was probably meant, and others' words in errors"},
		{path: "internal/seldom", floor: -1, knows: "when a line that recurs may be logged again", never: join(
			no(imports, "it is below all that logs", "ours", "third-party"),
			clocks("now is passed in"),
		)},
		{path: "internal/yamltree", floor: 0, knows: "YAML -> values with positions; what the library may be given",
			never: join(
				no(imports, "it takes bytes: where they come from is for others to know", "os"),
				no(panics, "files are written by people: what is wrong with them is an error with a line number", ""),
			)},
		{path: "internal/explained", floor: 1, knows: "explanations as nodes send them -> the types"},
		{path: "internal/waiting", floor: 1, knows: "when a check is repeated that is to be allowed in the end"},
		{path: "internal/lease", floor: 1, knows: "units that owners have lent to who asks them; now is passed in",
			never: join(
				clocks("when a lease ends is a function of two instants"),
				no(spawns, "who asks and gives back decides who waits", ""),
			)},
		{path: "internal/slices", floor: 1, knows: "how the rate of a key is divided among its holders; now is passed in",
			never: join(
				clocks("when an assignment ends is a function of two instants"),
				no(spawns, "who asks decides who waits", ""),
			)},
		{path: "limiter/table", floor: 1, knows: "many keys: partition locks, slots, memory bound; now is passed in",
			never: join(
				clocks("now is passed in, read once by the outermost line"),
				no(spawns, "everything is done by the caller's goroutine, under one partition's lock", ""),
				no(imports, "a table does not know where its keys come from", "google.golang.org/grpc", "./ring", "./rules"),
			)},
		{path: "limiter/limitertest", floor: 1, knows: "what every decider must do, as a suite, and transcripts", never: join(
			clocks("it moves the clock of what it tests; its own would make results depend on the machine"),
		)},
		{path: "rules", floor: 1, knows: "bytes -> set; all errors of a file at once, with line numbers", never: join(
			no(imports, "it takes bytes: where they come from, and when they change, is for cmd to know", "os",
				"github.com/fsnotify/fsnotify"),
			no(panics, "rules are written by people: what is wrong with them is an error with a line number", ""),
			no(uses, "it panics on a pattern that is wrong; a pattern from a file is an error with a line number",
				"regexp.MustCompile", "regexp.MustCompilePOSIX"),
			clocks("what a request resolves to depends on the request alone"),
		)},
		{path: "ring", floor: 1, knows: "sorted members -> table of owners", never: join(
			no(imports, "it is given members, however they were found", "github.com/hashicorp/memberlist"),
			no(imports, "who owns what depends on the members alone", "time"),
			no(panics, "a ring that cannot be built is an error, and the old one stays", ""),
		)},

		{path: "internal/cluster/view", floor: 2, knows: "the members as one node sees them, and their ring; immutable",
			never: join(
				no(imports, "a view never changes, so nobody waits for it", "sync", "context"),
				clocks("a view is what it was made of"),
				no(spawns, "a view is what it was made of", ""),
			)},
		{path: "internal/cluster/mesh", floor: 3,
			knows: "the queues to the other members: frames, confirmations, relays, rules that frames name", never: join(
				no(imports, "frames are carried, whoever calls and whoever owns", "./internal/peerlink", "./ring", "./rules",
					"context"),
				clocks("the clock is passed in, so the simulator drives the very same code"),
				no(spawns, "the network takes frames when it is ready for them", ""),
			)},
		{path: "internal/cluster/members", floor: 3,
			knows: "who is a member: what gossip proposes and links confirm; who counts; a node's states", never: join(
				no(imports, "it asks an interface what it needs of links and partitions", "./internal/peerlink", "./limiter/table",
					"./ring"),
				clocks("the scheduler that is passed in owns time"),
				no(spawns, "the scheduler that is passed in calls it", ""),
			)},
		{path: "internal/cluster/replica", floor: 3,
			knows: "the protocol of one partition, as a state machine; what it has to say are its effects", never: join(
				no(imports, "the shell locks it: a machine of one partition is entered by one caller at a time", "sync"),
				no(imports, "it never waits, and says nothing itself: what is to be done are its effects", "context", "net", "os",
					"log", "time"),
				no(imports, "it is the protocol and nothing else: the wire, the ring and the members are told to it", "third-party",
					"./proto", "./ring", "./rules"),
				clocks("time is an input of each step, so that a step repeats"),
				no(imports, "randomness is passed in, so that a seed replays a run", "crypto/rand"),
				globalRand("randomness is passed in, so that a seed replays a run"),
				no(spawns, "it is a function of its state and of what it is told", ""),
			)},
		{path: "internal/cluster/route", floor: 4, knows: "the life of a call: owner, heir, fan-out, policy", never: join(
			no(imports, "it asks its node to decide, and its places who owns", "./internal/cluster/members",
				"./internal/peerlink", "./ring", "./rules"),
			clocks("time is in the turn"),
			globalRand("randomness is passed in, so that a seed replays a run"),
			no(spawns, "a call is moved on by replies and ticks", ""),
		)},
		{path: "internal/cluster", floor: 5, knows: "decide here, ask the owner, the heir, or fall back; the protocol",
			never: join(
				no(imports, "it declares the interfaces that adapters satisfy, so the simulator can satisfy them too",
					"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/hashicorp/memberlist",
					"github.com/prometheus", "github.com/redis", "./proto"),
				clocks("the scheduler that is passed in owns time and every timer, so the simulator drives the very same code"),
				no(imports, "randomness is passed in, so that a seed replays a run", "crypto/rand"),
				globalRand("randomness is passed in, so that a seed replays a run"),
			)},

		{path: "internal/cluster/gossip", floor: 6, knows: "memberlist <-> membership events", never: join(
			no(imports, "gossip carries membership and nothing else", "./transport", "./limiter"),
		)},
		{path: "internal/peerlink", floor: 6, knows: "streams between members: handshake, frames, backoff", never: join(
			no(imports, "it carries frames and decides nothing", "./internal/cluster", "./ring", "./limiter/table"),
			no(imports, "a peer is an address here, however it was found", "github.com/hashicorp/memberlist"),
			no(imports, "it is watched through an observer", "github.com/prometheus"),
		)},
		{path: "transport", tree: true, floor: 6, knows: "connections, deadlines, wire <-> types; peers are addresses",
			never: join(
				no(imports, "it carries what it is given and decides nothing", "./internal/cluster", "./ring"),
				no(imports, "a peer is an address here, however it was found", "github.com/hashicorp/memberlist"),
				no(imports, "it is watched through an observer", "github.com/prometheus"),
			)},
		{path: "internal/envoy/config", floor: 1,
			knows: "files of envoyproxy/ratelimit -> limits; which of them a descriptor has", never: join(
				no(imports, "it takes bytes: where they come from, and when they change, is for cmd to know", "os",
					"github.com/fsnotify/fsnotify"),
				no(imports, "a configuration is read without a server", "google.golang.org/grpc", "github.com/envoyproxy"),
				no(panics, "files are written by people: what is wrong with them is an error", ""),
				clocks("what a descriptor has depends on the files alone"),
			)},
		{path: "internal/envoy/quota", floor: 1,
			knows: "the protocol of Envoy's rate limit quota service for one stream; now is passed in", never: join(
				clocks("what is assigned is a function of reports, answers and instants"),
				no(spawns, "it waits for nothing", ""),
				no(imports, "it is given messages, and knows no network", "google.golang.org/grpc"),
			)},
		{path: "internal/envoy/quota/quotatest", floor: 1, knows: "what Envoy's client of that service does, for tests"},
		{path: "internal/envoy/files", floor: 2, knows: "a directory of such files, also as a ConfigMap is mounted"},
		{path: "internal/envoy", floor: 7, knows: "Envoy's rate limit service <-> requests to a node", never: protocol()},
		{path: "internal/envoy/xds", floor: 6,
			knows: "a management server's configuration of that service, acknowledged or refused", never: join(
				no(imports, "what a resource means is told to it", "./internal/envoy/config", "./transport", "./internal/cluster"),
			)},
		{path: "internal/resp", floor: 7, knows: "the Redis protocol <-> requests to a node", never: join(
			protocol(),
			no(panics, "what clients send is hostile: it is an error", ""),
		)},
		{path: "internal/gubernator", floor: 7, knows: "Gubernator's protocol <-> requests to a node", never: join(
			protocol(),
			no(panics, "what clients send is hostile: it is an error", ""),
		)},
		{path: "internal/forward", floor: 7, knows: "the sub-requests of web proxies -> checks, as httplimit makes them",
			never: join(
				no(imports, "it needs something that decides, and does not care what", "./internal/cluster", "./redisstore"),
			)},
		{path: "internal/conns", floor: 6,
			knows: "the connections of a listener, each in a goroutine, until they are told to end"},
		{path: "internal/spoe", floor: 7, knows: "HAProxy's offload protocol <-> sub-requests of a web proxy", never: join(
			protocol(),
			no(panics, "what comes over the network is hostile: it is an error", ""),
		)},
		{path: "client", floor: 6, knows: "many callers on one stream; learns the ring, asks owners directly", never: join(
			no(imports, "a caller of Weir must not compile a node", "./internal/cluster"),
			no(imports, "a peer is an address here, however it was found", "github.com/hashicorp/memberlist"),
			no(imports, "it is watched through an observer", "github.com/prometheus"),
		)},
		{path: "diskstore", floor: 6, knows: "a directory for a member's counters"},
		{path: "redisstore", floor: 8, knows: "one decision = one script call", never: join(
			no(imports, "Redis is the shared state, so there is nobody to route to", "./internal/cluster", "./ring",
				"./transport"),
		)},
		{path: "metrics", floor: 6, knows: "observer calls -> collectors on a given Registerer", never: join(
			no(literals, "a label per key has as many values as there are callers, and a metrics server has not",
				"key", "user", "ip", "path"),
		)},
		{path: "middleware/identity", floor: 2, knows: "who sends a request, by signed sessions and tokens", never: join(
			no(imports, "it is for any service that has sessions or tokens, whatever limits it", "ours"),
		)},
		{path: "internal/front", floor: 2,
			knows: "addresses behind proxies, and decisions as fields, for middlewares and servers", never: join(
				no(imports, "it is pure: bytes in, bytes out", "net/http", "google.golang.org/grpc", "os", "sync", "context"),
				clocks("it is pure"),
			)},
		{path: "internal/middle", floor: 3,
			knows: "what both middlewares have in common: options, the memory of a check, settlements", never: join(
				no(imports, "it is for both middlewares", "net/http", "google.golang.org/grpc"),
			)},
		{path: "middleware/httplimit", floor: 6, knows: "request -> check, decision -> headers and status",
			never: middleware()},
		{path: "middleware/grpclimit", floor: 6, knows: "request -> check, decision -> headers and status",
			never: middleware()},

		{path: "internal/frontend", floor: 1,
			knows: "a session of a caller: who it is, what it may do and how much; who decides, and who is told", never: join(
				no(imports, "it is below every protocol", "net/http", "google.golang.org", "net"),
				no(imports, "it asks a decider, and does not care how that decides", "./limiter/table", "./rules"),
				clocks("the decider and the budgets have clocks"),
			)},
		{path: "internal/frontend/overgrpc", floor: 3, knows: "what callers over gRPC show; errors as statuses",
			never: clocks("it is pure")},
		{path: "internal/frontend/overhttp", floor: 2, knows: "what callers over HTTP show; how a site is told of refusals",
			never: clocks("it is pure")},
		{path: "internal/weirwire", floor: 4,
			knows: "the codec of weir.v1: messages -> requests, decisions -> messages", never: join(
				clocks("what a message says does not depend on when it is read"),
				no(spawns, "it is bytes in, bytes out", ""),
				no(imports, "it reads what it is given, whatever carries it", "net", "net/http", "os", "sync", "context",
					"google.golang.org/grpc"),
				no(panics, "what clients send is hostile: it is an error", ""),
			)},
		{path: "internal/listen", floor: 4,
			knows: "what stands on a socket: bounds of connections, TLS, clients that stall, the memory of what they do not " +
				"read", never: join(
				no(imports, "it carries what it is given and decides nothing", "./transport", "./rules", "./limiter/table"),
			)},
		{path: "internal/engine", floor: 2, knows: "what lies between a node and the part of it that decides"},
		{path: "", floor: 7, knows: "the front door for embedders; who decides is chosen here", never: join(
			no(imports, "an embedder who uses no Redis, no Prometheus and no cluster compiles none of them",
				"./redisstore", "./metrics", "./cluster", "./internal/cluster", "./internal/peerlink", "./ring",
				"github.com/redis", "github.com/prometheus", "google.golang.org/grpc", "github.com/hashicorp/memberlist"),
		)},

		{path: "cluster", floor: 8, knows: "a node as a member: the only place where gossip, links and the core meet"},

		{path: "weirtest", floor: 8, knows: "a node with a clock that a test moves", never: join(
			clocks("the test moves the clock"),
		)},

		{path: "internal/access", floor: 3, knows: "a permissions file; credentials -> an identity and what it may do",
			never: join(
				no(imports, "it judges callers and decides nothing", "./internal/cluster", "./ring", "./redisstore", "./cluster"),
			)},
		{path: "internal/denials", floor: 1, knows: "the last denials of a node, in bounded memory", never: join(
			clocks("the clock is passed in"),
			no(spawns, "a denial is recorded by whoever decided it", ""),
		)},
		{path: "internal/overrides", floor: 2,
			knows: "what operators decided in place of rules, in an order that members share",
			never: join(
				clocks("now is passed in"),
				no(spawns, "it is a book", ""),
			)},
		{path: "internal/history", floor: 1, knows: "what a node decided lately, in slots of a second and of ten",
			never: join(
				clocks("now is passed in"),
				no(spawns, "it is told what to keep", ""),
			)},
		{path: "internal/counters", floor: 7, knows: "counters <-> lines of JSON", never: join(
			clocks("instants are passed in"),
			no(spawns, "it is a form", ""),
		)},
		{path: "internal/console", floor: 8, knows: "what an operator sees of a cluster, as JSON and as pages", never: join(
			no(imports, "it asks a node and, by a function, the other members", "./cluster", "./internal/cluster",
				"./redisstore"),
		)},
		{path: "internal/audit", floor: 2, knows: "events of requests -> lines of a file, at a bounded rate"},
		{path: "serve", floor: 8, knows: "a node with its metrics and its servers", never: join(
			no(imports, "who decides is the embedder's choice", "./cluster", "./redisstore", "./internal/cluster"),
		)},

		{path: "cmd/node", tree: true, floor: 9, knows: "flags, environment, files, signals", never: command()},
		{path: "cmd/weir", tree: true, floor: 9, knows: "flags, environment, files, signals", never: command()},
		{path: "examples/tokens", floor: 9, knows: "a language model's answer -> what it used"},
		{path: "chaos", tree: true, floor: 9,
			knows: "the promises under faults: virtual time with a seed, and real processes"},
		{path: "deploy/sbom", floor: 9, knows: "what a program was built from -> its bill of materials"},
		{path: "internal/redistest", floor: 8, knows: "real redis-server processes, for tests"},
		{path: "internal/archtest", floor: 8, knows: "the source itself"},
	}
}

// library is a module that the house may use.
type library struct {
	path string
	in   []string // rows whose code may import it; none: tests only
	why  string
}

// libraries returns all that go.mod may require.
func libraries() []library {
	return []library{
		{"github.com/buraksezer/consistent", []string{"ring"},
			"who owns what must be computed in one place, the same on every node"},
		{"github.com/hashicorp/memberlist", []string{"internal/cluster/gossip"},
			"its delegates run under its lock; one package knows how to live with that"},
		{"github.com/redis/go-redis", []string{"redisstore", "cmd/weir"},
			"an embedder without Redis must not compile its client; the tool asks Redis what it takes"},
		{"github.com/prometheus", []string{"metrics"},
			"everyone else calls an observer, so that an embedder may bring another"},
		{"google.golang.org/grpc", []string{"proto", "transport", "internal/frontend/overgrpc", "internal/listen",
			"internal/envoy", "internal/envoy/xds", "internal/gubernator", "internal/peerlink", "internal/dialing", "client",
			"middleware/grpclimit", "cmd/weir", "chaos"},
			"connections are the business of these; the tool asks nodes in each way that the wire has, to measure them, and " +
				"chaos sends what no honest client does"},
		{"github.com/envoyproxy/go-control-plane", []string{"internal/envoy", "internal/envoy/xds",
			"internal/envoy/quota/quotatest"},
			"only who serves Envoy compiles its messages"},
		{"gopkg.in/yaml.v2", []string{"internal/envoy/config"},
			"files of envoyproxy/ratelimit mean what this library makes of them"},
		{"google.golang.org/protobuf", []string{"proto", "transport", "internal/weirwire", "internal/frontend/overgrpc",
			"internal/envoy",
			"internal/envoy/config", "internal/envoy/xds", "internal/envoy/quota", "internal/envoy/quota/quotatest",
			"internal/gubernator", "internal/peerlink", "client", "middleware/grpclimit", "chaos"},
			"the wire ends where its messages become types; a denial's details are messages too"},
		{"go.opentelemetry.io", []string{"cmd/node"},
			"traces are sent by the node program; an embedder brings a tracer of its own"},
		{"google.golang.org/genproto", []string{"internal/frontend/overgrpc", "client", "middleware/grpclimit",
			"internal/envoy/xds"},
			"a denial in gRPC has details that any client can read, such as a wait; a refusal of a configuration is such a " +
				"detail"},
		{"github.com/golang-jwt/jwt", []string{"middleware/identity"},
			"tokens are verified in one place, so that no other can forget a check"},
		{"github.com/dchest/siphash", []string{"rules", "limiter/table", "ring"},
			"a keyed hash makes identities that nobody outside can make collide"},
		{"github.com/goccy/go-yaml", []string{"internal/yamltree"},
			"a file of each kind is read in one place, with the position of each mistake"},
		{"github.com/spf13", []string{"cmd/node", "cmd/weir", "internal/commandline", "internal/manual"},
			"flags are the business of programs"},
		{"golang.org/x/term", []string{"cmd/node", "cmd/weir"}, "terminals are the business of programs"},
		{"golang.org/x/sys", []string{"cmd/node", "cmd/weir", "chaos", "internal/loadgen"},
			"timers of the kernel, processes and terminals are the business of programs"},
		{"github.com/fsnotify/fsnotify", []string{"cmd/node"}, "watching files is the business of programs"},
		{"pgregory.net/rapid", nil, "property tests"},
		{"github.com/google/go-cmp", []string{"limiter/limitertest"}, "tests, and the suite that is one"},
		{"go.uber.org/goleak", nil, "tests"},
		{"github.com/anishathalye/porcupine", []string{"chaos"}, "linearizability of recorded histories"},
		{"github.com/chromedp/chromedp", nil, "tests of pages in a browser"},
	}
}

// general is a ban for many packages at once.
type general struct {
	ban
	// below is the lowest floor that is free of it; 0 means that none is.
	below int
	// but lists rows that are free of it.
	but []string
}

// generals returns the bans that hold for code, tests apart, all over the
// house.
func generals() []general {
	const (
		adapters = 6
		programs = 9
	)
	var out []general
	all := func(below int, bans []ban, but ...string) {
		for _, b := range bans {
			out = append(out, general{b, below, but})
		}
	}
	all(0, no(imports, "whoever embeds Weir needs no C compiler", "C"))
	all(0, no(imports, "it is for tests", "testing"), "limiter/limitertest", "internal/redistest",
		"internal/certs/certstest", "chaos")
	all(0, no(imports, "it is for tests", "./limiter/limitertest"))
	all(0, no(panics, "a mistake of the caller's is an error, and a mistake of ours must not end the caller's program",
		""),
		"limiter/limitertest", "chaos") // these end tests, not programs
	all(0, no(uses, "collectors live on the Registerer that was given, so that two nodes fit into one process",
		"github.com/prometheus/client_golang/prometheus.DefaultRegisterer",
		"github.com/prometheus/client_golang/prometheus.DefaultGatherer",
		"github.com/prometheus/client_golang/prometheus.MustRegister",
		"github.com/prometheus/client_golang/prometheus.Register",
		"github.com/prometheus/client_golang/prometheus.Unregister",
		"github.com/prometheus/client_golang/prometheus/promhttp.Handler",
		"github.com/prometheus/client_golang/prometheus/promauto.New*"))
	all(programs, no(uses, "the environment belongs to the program; an embedder sets a Config",
		"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "os.Setenv", "os.Unsetenv", "os.Clearenv",
		"syscall.Getenv"))
	all(programs, no(uses, "only the program may end the program", "os.Exit", "syscall.Exit"))
	all(programs, no(uses, "the logger is the embedder's: take one in the Config",
		"log.*", "log/slog.SetDefault",
		"log/slog.Debug*", "log/slog.Info*", "log/slog.Warn*", "log/slog.Error*"))
	all(programs, no(uses, "the logger is the embedder's: take one in the Config", "log/slog.Default"),
		"",                // who gives no logger hears warnings all the same: a member that is alone multiplies each limit
		"internal/middle") // a middleware has no logger, and one that no rule can serve refuses all requests
	all(programs, no(uses, "it is shared with everything else in the program",
		"net/http.DefaultServeMux", "net/http.Handle", "net/http.HandleFunc"))
	all(programs, no(imports, "importing it changes the program's handlers", "net/http/pprof", "expvar"))
	all(adapters, no(uses, "below the adapters nothing waits for wall-clock time", "time.Sleep"))
	return out
}

// stateAllowed names the variables at package level that are no error, embedded
// file, compiled pattern or blank, with the reason why each is harmless. The
// key is the package's path, a dot, and the name.
func stateAllowed() map[string]string {
	return map[string]string{
		"chaos/sim.rings":         "rings by their names, which never change; no world sees whether another made one",
		"internal/built.commit":   "the linker sets it, and nothing else can",
		"internal/built.released": "the linker sets it, and nothing else can",
		"limiter/calendar.index":  "made once of the embedded time zones, and the same ever after",
	}
}

// longAllowed names the files that are longer than the rule, how long each is, and the reason
// why it is still one idea.
func longAllowed() map[string]allowance {
	const broken = "it is what it was before its wide lines were broken"
	return map[string]allowance{
		"cmd/node/internal/app/app_test.go": {744, broken},
	}
}

// flatTypes names the structs that have no bound of fields: each field is one thing that somebody sets, sends or shows,
// and to group those would only move them. Their methods are bounded as those of others.
func flatTypes() map[string]string {
	const (
		setting = "each field is a setting that a user, or a test, can give"
		rule    = "each field is a setting of a rule or a limit"
		item    = "each field is a kind of item of the wire"
		metric  = "each field is a metric"
		column  = "each field is a member of the JSON that it is"
	)
	return map[string]string{
		".ClusterStats":                   metric,
		"chaos/history.History":           column,
		"cluster.Config":                  setting,
		"cmd/node/internal/app.options":   setting,
		"cmd/node/internal/server.Config": setting,
		"cmd/weir/internal/load.Point":    column,
		"internal/cluster.Config":         setting,
		"internal/peer.Frame":             item,
		"internal/peer.Limit":             rule,
		"metrics.ClusterStats":            metric,
		"rules.RuleInfo":                  rule,
		"rules.definition":                rule,
		"rules.spec":                      rule,
		"transport.Options":               setting,
	}
}

// largeAllowed names the types that have more fields or methods than the rule, how many, and the
// reason why each is still one. The key is the package's path, a dot, the name, and
// fields or methods.
func largeAllowed() map[string]allowance {
	const (
		harness = "it is the world of a test run: all of its faults, clients and judges act on it"
		machine = "claims, questions, handoffs and pushes decide together who owns; what is held and what an owner does " +
			"have types of their own"
		shell = "each entry into the core is a method; its parts have types of their own, which callers reach through it"
		owner = "an owner's parts have types of their own, without knowledge of each other; the core asks them through " +
			"the owner"
	)
	return map[string]allowance{
		".Node methods":                              {48, "each call of a node is a method"},
		"chaos/scenario.stage methods":               {90, harness},
		"chaos/sim.World fields":                     {48, harness},
		"chaos/sim.World methods":                    {137, harness},
		"chaos/sim.key fields":                       {49, harness},
		"client.Client methods":                      {64, "each call of a client is a method"},
		"internal/cluster/route.Call methods":        {34, "each event in the life of a call is a method"},
		"cmd/weir/internal/cli.app methods":          {85, "each command of the tool is a method"},
		"internal/cluster.Core fields":               {31, shell},
		"internal/cluster.Core methods":              {70, shell},
		"internal/cluster/mesh.Writer methods":       {40, "each kind of message has a method that writes it"},
		"internal/cluster/replica.Ownership fields":  {36, owner},
		"internal/cluster/replica.Ownership methods": {71, owner},
		"internal/cluster/replica.Replica fields":    {33, machine},
		"internal/cluster/replica.Replica methods":   {116, machine},
		"internal/cluster/replica.held fields":       {25, "it is what a member knows of one partition"},
		"limiter/table.Table methods": {110,
			"a table is one set of counters; its methods are in files by concern"},
		"limiter/table.partition methods": {67, "it is one lock, with all that is done under it"},
		"rules.Set methods":               {46, "each question about rules is a method"},
	}
}

func middleware() []ban {
	return no(imports, "it needs something that checks, and does not care what", "./internal/cluster", "./transport",
		"./redisstore")
}

// protocol returns what the packages of protocols must not do.
func protocol() []ban {
	return join(
		no(imports, "it needs something that decides, and does not care what", "./internal/cluster", "./redisstore"),
		no(imports, "who asks is a session of frontend, whatever it speaks: no protocol needs the server of another",
			"./transport"),
	)
}

func command() []ban {
	return join(
		no(uses, "an algorithm is chosen in a rules file and computed in limiter/arith; a program shows its name",
			"./limiter.SlidingCounter", "./limiter.FixedWindow", "./limiter.SlidingLog", "./limiter.SlidingWindow",
			"./limiter.TokenBucket", "./limiter.LeakyBucket", "./limiter.GCRA"),
		no(imports, "the parts of a node meet in the root package and in cluster", "./ring", "./internal/cluster",
			"./limiter/table"),
	)
}

// clocks bans reading the clock and waiting for it. Types and arithmetic of
// package time are free.
func clocks(why string) []ban {
	return no(uses, why, "time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc",
		"time.Tick", "time.NewTimer", "time.NewTicker")
}

// globalRand bans the generators that a whole program shares. Generators made
// from a source are free.
func globalRand(why string) []ban {
	var out []ban
	for _, f := range []string{
		"Int*", "N", "Uint*", "Float*", "NormFloat64", "ExpFloat64", "Perm", "Shuffle", "Seed", "Read",
	} {
		out = append(out, no(uses, why, "math/rand."+f, "math/rand/v2."+f)...)
	}
	return out
}

func no(k kind, why string, names ...string) []ban {
	out := make([]ban, len(names))
	for i, n := range names {
		out[i] = ban{k, n, why}
	}
	return out
}

func join(lists ...[]ban) []ban {
	var out []ban
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}
