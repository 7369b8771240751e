package main

import "slices"

// reality is what is asked of real processes.
type reality struct {
	only, scenarios, out string
	trials               int
	seed                 uint64
}

// showing says how real processes show that a protection is missing, or why they
// cannot.
type showing struct {
	// scenario and seed of chaos that notice; empty: none does, and why says why.
	scenario string
	seed     uint64
	why      string
}

// showings returns one for each mutation, by its name.
func showings() map[string]showing {
	all := showingsOfNodes()
	all["counters move in spans, not by the giver's clock"] = showing{scenario: "clocks-apart", seed: 1}
	for _, name := range []string{"a tick for a deadline of its own", "hasty checks find a silent owner",
		"one question for each partition", "a policy before Envoy's deadline"} {
		all[name] = showing{why: briefly}
	}
	all["the last frames of a node that leaves arrive"] = showing{why: "the simulator's network is changed, and no node"}
	cannot := func(why string, lists ...[]mutation) {
		for _, m := range slices.Concat(lists...) {
			all[m.name] = showing{why: why}
		}
	}
	cannot("the clients of the scenarios are honest, and chaos -attack goes by wider bounds; a test of the package "+
		"makes the attack alone", ofPorts())
	cannot(nameless, ofIDs(), ofIDRing(), ofTakeBacks(), ofMerges())
	cannot(unheld, ofHolds(), ofBacks(), ofSlots())
	cannot("no scenario uses the decision of an error, has so large counts, or opens calls that ask nothing", ofAnswers())
	cannot("the scenarios count in members, not in Redis", ofRedisUnits())
	cannot("no scenario has a limit above 2^32-1", ofWideBlocks())
	cannot(overdue, ofOverdue())
	cannot(settling, ofAttempts())
	cannot(narrow, ofClaims(), ofSteps(), ofCopies(), ofResets(), ofMoves())
	cannot(byRules, ofQuotas())
	cannot(clients, ofReceipts())
	cannot("the nodes of chaos have no permissions and no audit", ofAccess())
	cannot("no scenario of chaos has a member that lies", ofLies(), ofHostile())
	cannot(lent, ofLeases())
	all["lent units count as charged now"] = showing{scenario: "nothing", seed: 1}
	cannot("no scenario of chaos has Envoy", ofEnvoy())
	cannot("the nodes of chaos have disks where their power is cut alone; not tried", ofDisks())
	cannot(narrow, ofHeard())
	all["a datagram costs what it is long"] = showing{why: "no scenario measures what datagrams cost"}
	cannot(byNames, ofJoining())
	return all
}

// Why real processes cannot show a mutation.
const (
	narrow = "it takes two messages that cross within one round trip; the tests of cluster put them in that order; " +
		"not tried"
	clients  = "the clients of chaos take nothing back"
	nameless = "the clients of chaos give their checks no ids"
	unheld   = "the clients of chaos reserve nothing"
	resets   = "of the scenarios only reset-asked resets, at a paused owner; not tried"
	short    = "the windows of chaos are longer than the seconds in which a split is not noticed by gossip; not tried"
	unseen   = "a copy too many changes no answer"
	clocks   = "a node's clock never steps"
	inRedis  = "the nodes of chaos count in memory; the tests of redisstore have real servers"
	byRules  = "the rules of chaos have quotas that each check draws one unit from, and no calendars; the examples are " +
		"run with real nodes and with Redis; not tried"
	lent     = "two rules of chaos lend members units of logs, and no slices, and no clients; not tried"
	byNames  = "the nodes of chaos join by addresses and keep their keys; TestJoinByDNS has real nodes and a DNS server"
	settling = "what a reservation denies too much for a moment is within what a scenario allows"
	overdue  = "what stays counted of checks that were denied is within what a scenario allows; not tried"
	briefly  = "the clients of chaos wait longer than a policy takes"
	forging  = "no node of chaos says what is not true; TestForgedPeer of cmd/node does"
	defect   = "no node of chaos panics: it takes a defect, which the tests inject"
	granted  = "members that live know the former owner, so a start in its place needs the grants of all, too; not " +
		"noticed in 6 trials of kill-split"
	often = "not noticed in 4 trials, one of them on a quiet machine: policies do not answer 16 checks of one key, " +
		"of as many as its clients ask"
)

// showingsOfNodes returns those of what nodes do with each other and with honest clients.
func showingsOfNodes() map[string]showing {
	return map[string]showing{
		"seal":                                                  {scenario: "rolling-hot", seed: 1},
		"withholding beyond D":                                  {scenario: "kill-hot", seed: 2},
		"revoke before appoint":                                 {scenario: "leave-kill", seed: 2},
		"renewal without the old heir's word":                   {scenario: "pause-kill", seed: 1},
		"merge of what a fenced owner had":                      {scenario: "flap", seed: 1},
		"every member before an empty start":                    {why: granted},
		"all or nothing":                                        {scenario: "several", seed: 1},
		"an id is forgotten where nothing was charged":          {why: narrow},
		"fallback survives reconnection":                        {scenario: "flap", seed: 1},
		"the end of a cached denial":                            {scenario: "cached-denials", seed: 1},
		"no live counter makes room":                            {scenario: "full", seed: 1},
		"merge, not sum":                                        {scenario: "split-asked", seed: 1},
		"a minority's share":                                    {scenario: "split-asked", seed: 1},
		"a claim that few answer":                               {why: short},
		"who claims nothing asks":                               {why: short},
		"who has left is told over links":                       {why: narrow},
		"who has left says so to who connects":                  {why: narrow},
		"who has left counts no more, whatever gossip calls it": {why: narrow},
		"what is over ends before what comes":                   {why: narrow},
		"an heir that is wanted again is asked what it is":      {why: narrow},
		"who is lost may not be alone":                          {why: short},
		"half is no majority":                                   {why: short},
		"who joins is on no side of a split":                    {why: short},
		"instance ids":                                          {scenario: "quick-restart", seed: 1},
		"a live holder's answer ends a claim":                   {scenario: "one-link", seed: 21},

		"fence: a promoted heir acknowledges": {why: "noticed in 1 of 1 trial of pause-asked, by 80 " +
			"admitted of 60, and in 0 of 1 of flap: too few to be held to it"},
		"the giver as first heir": {why: "without it the receiver withholds for two round " +
			"trips more, which is less than the deadline; not noticed in 2 trials of leave-kill"},
		"a counter granted to one claimant": {why: narrow},
		"a grant that binds":                {why: narrow},
		"silence of a fresh instance":       {why: narrow},
		"kept copies": {why: "the next heir has a whole copy before the old one " +
			"is asked to go: that is left as the last resort; not tried"},
		"taking back when fenced": {why: "noticed in 1 of 2 trials of stutter-hot, by 3 " +
			"units: most who waited have given up before the pause ends"},
		"taking back before merging": {why: "it costs D units at a takeover, which may cost as " +
			"much; not tried"},
		"the probe before reopening": {why: "it costs D units at a handoff, and only where the " +
			"network is slow, which makes nodes take each other for dead as well; not noticed in one trial each of flap and " +
			"pause-asked"},
		"relay":              {why: often},
		"heir before policy": {why: often},
		"refund cap": {why: "a bucket must be empty between a reservation and " +
			"its cancel, which takes exact instants"},
		"the ping after the wait began": {why: "an available owner goes to its share too early, " +
			"which it may do a moment later anyway; not tried"},
		"an acknowledgement brings the next tick forward": {why: "a batch is sent 40 ms later, which is the time of " +
			"a resend"},
		"only the last owner may be missing":            {why: narrow},
		"a last resort gives way to a later copy":       {why: narrow},
		"a majority records an epoch":                   {why: narrow},
		"a takeover that some have recorded goes on":    {why: narrow},
		"who claims is not doubted":                     {why: narrow},
		"an owner that stopped in vain asks its heir":   {why: narrow},
		"an heir that is believed again drops a copy":   {why: narrow},
		"a leaving node waits for those it has lost":    {why: "no scenario stops a node that has lost all others"},
		"who leaves tells whom gossip has not shown":    {why: narrow},
		"who leaves tells who connects":                 {why: narrow},
		"a reset is newer than what a paused owner had": {why: resets},
		"a reset waits for the heir":                    {why: resets},
		"a reset without counters waits for the heir":   {why: resets},
		"what follows a reset can be taken back":        {why: clients},
		"receipts of this lineage only": {why: "clients of real processes refund on one side of a " +
			"split only"},
		"a counter's own time":                                  {why: clocks},
		"a bucket remembers its last charge":                    {why: clocks},
		"a bucket in Redis remembers its last charge":           {why: clocks},
		"redis: limits of two names change in one batch":        {why: inRedis},
		"a batch on Redis Cluster is asked in rounds":           {why: inRedis},
		"a round is completed without its caller":               {why: inRedis},
		"a batch on Redis Cluster has one timeout":              {why: inRedis},
		"no round before the reservations of another":           {why: inRedis},
		"a call of a lane that ends is submitted again":         {why: inRedis},
		"a script that may have run is not sent again":          {why: inRedis},
		"what is exported by a clock that went back":            {why: clocks},
		"a refund finds what came to a later entry":             {why: clocks},
		"a level that is bounded":                               {why: clocks},
		"a denial writes nothing":                               {why: unseen},
		"a denial waits for the cancel":                         {why: settling},
		"no denial by what may be taken back":                   {why: settling},
		"an owner is told that a reservation stands":            {why: settling},
		"a part waits for a moment only":                        {why: settling},
		"a contested check is taken back":                       {why: settling},
		"a provisional denial begins no block":                  {why: settling},
		"a provisional denial is not remembered":                {why: settling},
		"a reservation is taken back once":                      {why: settling},
		"the wait after what denials charge":                    {why: settling},
		"what is never allowed charges nothing":                 {why: settling},
		"what is never allowed in shadow charges nothing there": {why: settling},
		"a shadow that never admits remembers ids":              {why: settling},
		"a denial in a block writes nothing":                    {why: unseen},
		"a block is copied when it begins":                      {why: "no rule of chaos has a block"},
		"a charge ends cached denials": {why: "the clients of chaos ask for one unit at a time: a " +
			"denial of one is right until it ends"},
		"a refund ends cached denials":    {why: clients},
		"a reset ends cached denials":     {why: resets},
		"a refund is asked of one member": {why: clients},
		"memory of its own for what waited": {why: "two goroutines must write one answer at the same " +
			"moment"},
		"nothing is left on a link that is down": {why: "no count changes; a soak of half an hour sees the " +
			"frames that stay"},
		"ended instances are forgotten": {why: "no count changes; only the memory of a node that " +
			"others join and leave for days"},
		"word of an earlier asking": {why: "a message that takes two ways has to come late on " +
			"one, by two round trips and within the deadline of a refund"},
		"numbers of frames go on": {why: "two nodes have to be apart for a minute, and the " +
			"connection silent in one direction afterwards, before as many frames as there were before"},
		"patience after standing still": {why: "it takes a machine with so much to do that an heir " +
			"answers 50 ms late after a pause; TestPausedOwner of cmd/node noticed it in one of ten tries beside three others"},
		"who is linked stays met":                         {why: forging},
		"snapshots that never end are dropped":            {why: forging},
		"room for streams of gossip from other addresses": {why: forging},
		"an end of silent streams of gossip":              {why: forging},
		"a bound of lines about strangers":                {why: forging},
		"who does not answer may be there":                {why: forging},
		"a bound of what waits for others":                {why: forging},
		"a bound of what a member does not read":          {why: forging},
		"epochs that can be":                              {why: forging},
		"resets are the owner's to allow":                 {why: resets},
		"a minority forgets nobody":                       {why: "it takes a split of ten minutes"},
		"a panic ends at the partition":                   {why: defect},
		"a panic ends at the partitions of a check":       {why: defect},
		"broken state is dropped":                         {why: defect},
		"who waits for a broken partition is told":        {why: defect},
		"the heir of a broken owner takes over":           {why: defect},
		"a partition that breaks again is given up":       {why: defect},
		"what is given up is taken up again":              {why: defect},
		"what was put off is done after a panic":          {why: defect},
		"a frame is whole after a panic":                  {why: defect},
		"a state that may be half changed is not sent":    {why: defect},
	}
}
