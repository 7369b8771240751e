//go:build linux

// Package fleet runs real nodes and breaks them: processes, each in a network
// namespace of its own or, without root, on loopback, or the containers of
// docker-compose.yaml.
package fleet
