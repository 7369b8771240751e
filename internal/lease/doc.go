// Package lease decides checks by units that the owners of keys have lent: at a node that is not the owner, or in a
// client. What it needs of a network it leaves to its user, who asks for leases and gives them back.
package lease
