// Package listen is what stands on the sockets of servers, whatever they speak: how an address is opened, how many
// connections there are and which of them give way, and TLS.
package listen
