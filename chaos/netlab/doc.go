// Package netlab is a network of real Linux namespaces, joined by a switch in
// user space. Each namespace has one TAP device, whose frames the switch carries
// to the others: late, in another order, twice, or not at all, as each direction
// of each link is told. What is random is drawn from a seed, one stream for each
// direction, so a seed gives the n-th frame of a direction the same fate in every
// run. The kernel needs no module for it but tun.
//
// A second, faultless way, a pair of veth devices, leads from a namespace of
// clients to each node, so that what a client of a cut-off node sees can be
// recorded. No namespace has a route to anything else.
//
// It needs root and iproute2. Nothing of it has a name outside the process, so
// the kernel removes all of it when the process ends, however it ends.
package netlab
