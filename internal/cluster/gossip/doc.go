// Package gossip finds the other nodes of a cluster. It is the only package that imports
// memberlist, and it carries nothing but membership. It adds what memberlist lacks:
//
//   - Memberlist reports events under its lock. This package keeps them in a roster, and
//     reports the whole set of members, with changes combined, from a goroutine that
//     holds no lock.
//   - Memberlist forgets dead nodes after a while, and does not tell a node that left
//     from one that died. Here a dead member stays until it comes back or an operator
//     forgets it ([Gossip.Forget]), and a node that leaves tells the others. Nodes
//     exchange both, so that a node that joins later, or was cut off, counts the same
//     members.
//   - Memberlist accepts every node that speaks its protocol. Here a node's metadata
//     contains its cluster, a hash of its ring configuration and a mark of its secret. A
//     node with another cluster, ring or secret, and a second live node of one name, is
//     refused, and both sides log why.
//   - Memberlist never tries again. Here the addresses to join by, and those of dead
//     members, are asked every five seconds, so that a split heals. Of a name with
//     several addresses all are asked.
//   - Memberlist allocates as much as a message announces, and believes its contents.
//     Here messages are checked before memberlist gets them, streams and names have
//     bounds, and a member that is gone is only remembered if [Config.Vouched] confirms
//     it.
//   - Memberlist logs everything as unexpected. Here each problem is logged once a
//     minute, in words.
package gossip
