// Package members decides who is a member. [Membership] makes the views of a node from
// what gossip proposes and what links confirm, and takes the node through its states:
// joining, active, leaving. [Registry] remembers the members by name, so that majorities
// are counted of the dead too. The package knows neither links nor partitions: what it
// needs of them it asks its [Core].
package members
