// Package weirv1 is the wire of Weir, version 1: messages and stubs, generated
// from weir.proto, where everything is described. Package transport serves it.
package weirv1

//go:generate ../../generate.sh weir/v1/weir.proto

// TrailerUndecided is a field of the trailer of a CheckStream or of a call that a node
// ends. It is set if the node has decided none of the messages that it did not answer, so
// that they can be asked of another node.
const TrailerUndecided = "weir-undecided"
