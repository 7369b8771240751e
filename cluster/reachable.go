package cluster

import "net"

// reachable returns an address that others can be told: a host that means every
// address is replaced.
func reachable(addr, host string) string {
	h, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return addr
	}
	if ip := net.ParseIP(h); h == "" || ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort(host, port)
	}
	return addr
}

// reachableAdmin is as reachable, and empty for an address of loopback that is told to
// others who reach this member by another: they would ask themselves there.
func reachableAdmin(addr, host string) string {
	addr = reachable(addr, host)
	if h, _, err := net.SplitHostPort(addr); err == nil && local(h) && host != "" && !local(host) {
		return ""
	}
	return addr
}

// local reports whether a host is this machine, wherever it is said.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
