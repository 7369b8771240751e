// Package weirv1 is the wire of Weir, version 1: messages and stubs, generated
// from weir.proto, where everything is described. Package transport serves it.
package weirv1

//go:generate ./generate.sh

// TrailerUndecided is a field of the trailer of a CheckStream that a node ends: it is
// set where nothing was decided of the messages that were not answered, so that they
// can be asked of another node.
const TrailerUndecided = "weir-undecided"
