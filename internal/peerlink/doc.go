// Package peerlink holds the links between the nodes of a cluster: gRPC streams on a
// port that serves nothing else. It carries frames of package peer and does not
// interpret them.
//
// Two nodes share one stream, on which both send. So a reply, the acknowledgement of the
// request's frame, and new requests of the replying node travel in one message, and a
// forwarded check costs one message each way. With a stream for each direction the
// acknowledgement would cost a third. The node with the smaller instance dials. The
// other dials only if no connection has come for a while, as the first may have no route
// to it. If both dial at once, both keep the connection that the smaller instance
// dialled.
//
// The dialling node must be a member that the dialled node knows, and must name the node
// that it dials and the address. A node that is refused because news of it has not
// arrived yet tries again soon. Until a connection has proved who is there, at most a
// few KiB are read from it and no frame, and it may be closed to make room for others.
//
// No timer forms batches. A frame with checks is sent at once while fewer than two are
// unacknowledged, otherwise when one is acknowledged; meanwhile Frames collects further
// checks. The other side acknowledges a frame when it has processed it, so a slow node
// gets fewer and larger frames. Replies and control messages never wait for an
// acknowledgement.
//
// A broken link is made again at once, then after growing waits. Each attempt that a
// node refuses, or that does not reach it, is reported. A node that is merely silent is
// judged by the cluster.
package peerlink
