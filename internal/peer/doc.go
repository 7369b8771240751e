// Package peer holds the plain structs that nodes of a cluster exchange: who is
// a member, and the frames of the protocol between members. It knows neither
// how they travel nor what is done with them.
//
// Spans are in microseconds. No instant of one node's clock means anything to
// another, so none is in a frame; the only exception is the time in a receipt,
// which comes back to the node that wrote it.
package peer
