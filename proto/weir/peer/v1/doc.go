// Package peerv1 is the wire between nodes, version 1: messages and stubs,
// generated from peer.proto, where everything is described. Package
// internal/peerlink speaks it. It is not for clients.
package peerv1

//go:generate ../../../generate.sh weir/peer/v1/peer.proto
