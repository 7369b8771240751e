// Package mesh has the queues to the other members: frames that are being filled, frames
// that wait for the network, confirmations, round trips, and relays for members that
// cannot be reached directly. [Dictionary] has the rules that other members' frames name.
//
// The package knows neither partitions nor calls. Whether somebody still waits for a
// request it asks its [Config.Waiting]; requests that it cannot deliver it hands back as
// [Lost] values.
package mesh
