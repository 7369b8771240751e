// Package front has what the middlewares have in common: which address a
// request came from when proxies stand in between, and how a decision is told
// in fields of a response.
//
// Everything here is pure: no clock, no state, and values from the network are
// taken as what an attacker may have written.
package front
