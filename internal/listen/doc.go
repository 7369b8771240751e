// Package listen is what stands on the sockets of servers, whatever they speak: how an address is opened, how many
// connections there are and which of them give way, and TLS.
//
// Of connections over which gRPC is spoken a [Watcher] reads the frames too: it ends what clients do not go on with,
// and takes [Room] for the messages and answers that they do not read.
package listen
