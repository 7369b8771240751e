// Package sim runs a cluster in virtual time: the nodes' own code, over a
// network and a membership that delay, lose and lie as a seed says. A seed
// replays a run event for event.
package sim
