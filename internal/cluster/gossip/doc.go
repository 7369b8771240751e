// Package gossip tells a node who the other nodes are. It is the only package
// that knows memberlist, and carries membership and nothing else.
//
// What memberlist does not do is done here:
//
//   - It tells its events under its lock; here they are kept in a roster, and
//     the owner of a [Gossip] is told the whole set, coalesced, from a goroutine
//     that holds no lock.
//   - It forgets the dead after a while, and does not say who left and who died.
//     Here the dead stay until they come back or are forgotten by an operator
//     ([Gossip.Forget]); who leaves says so to everyone; and nodes tell each
//     other of both, so that a node that joins later, or was cut off, counts the
//     same members.
//   - It takes in any node that speaks its protocol. Here a node says in its
//     metadata which cluster it belongs to, how its ring is made, and a mark of
//     its secret; another cluster, another ring, another secret, and a second live
//     node of one name are refused, and both sides say why.
//   - It never tries again. Here the addresses to join by, and those of members
//     that are dead, are asked every five seconds, so that a split heals; of a
//     name with many addresses all are asked.
//   - It allocates what a message announces, and believes what it says. Here messages
//     are looked at before memberlist gets them, streams and names have bounds, and
//     of those who are gone only what [Config.Vouched] confirms is remembered.
//   - It logs as if everything were unexpected. Here each source of trouble is
//     named once a minute, in words.
package gossip
