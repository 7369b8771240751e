// Package weirv1 is the wire of Weir, version 1: messages and stubs, generated
// from weir.proto, where everything is described. Package transport serves it.
package weirv1

//go:generate ./generate.sh
