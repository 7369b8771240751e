// Package peerlink holds the links between the nodes of a cluster: gRPC streams
// on a port of its own, which serves nothing else. It carries frames of package
// peer and does not look into them.
//
// Between two nodes there is one stream, on which both send. So a reply, the
// acknowledgement of the frame that asked for it, and what the replying node
// wants to ask itself travel in one message, and a forwarded check costs one
// message each way. A stream for each direction would cost a third one, for the
// acknowledgement. The node with the smaller instance dials; the other does when
// nobody has come for a while, as the first may have no way to it. Where both dialled at once, both keep the one that the smaller
// instance dialled.
//
// Who dials must be a member that this node knows, and say whom it dials and where; one
// that is refused because news of it has not come yet tries again soon. Until a
// connection has proved who is there, next to nothing is read of it, no frame is, and it
// can be closed to make room for others.
//
// Batches make themselves: a frame with checks leaves at once while fewer than
// two are under way, else when one is acknowledged, and until then the checks
// that come up are collected where Frames keeps them. No timer is involved. The
// other side acknowledges when it has taken the frame in, so a slow node is
// sent fewer and larger frames. Replies, and all that keeps a cluster together,
// never wait for an acknowledgement.
//
// A link that breaks is made again at once, then after growing waits. That a
// node refuses, or is gone, is told at each attempt; that it is merely silent is
// for the cluster to judge.
package peerlink
