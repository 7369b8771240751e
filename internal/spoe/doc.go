// Package spoe is an agent of HAProxy's Stream Processing Offload Protocol (SPOP, version 2.0):
// HAProxy asks it about each request over connections that stay open, and gets variables back.
// A question is answered as the sub-request of a web proxy is, by the handler of package
// forward.
//
// The protocol is the one of doc/SPOE.txt of HAProxy 2.6.
package spoe
