// Package peer holds the plain structs that nodes of a cluster exchange: members, and
// the frames of the protocol between them. It does not know how they are sent or what is
// done with them.
//
// Spans are in microseconds. An instant of one node's clock means nothing to another, so
// frames carry no instants; the state of a counter is relative to the instant of its
// export. There are two exceptions: the time of a receipt, which returns to the node
// that wrote it, and the times in explanations, which people read.
package peer
