// Package front is the common part of the middlewares and of the HTTP server: it determines
// the address of a caller behind proxies, and formats decisions as response fields.
//
// It uses no clock and has no state. Values from the network are treated as written by
// an attacker.
package front
