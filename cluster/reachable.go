package cluster

import "net"

// reachable returns addr with host in place of a host that means every address.
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

// reachableAdmin is reachable for AdminAddr. It returns "" for a loopback address if
// others reach this member by another address: they would ask themselves there.
func reachableAdmin(addr, host string) string {
	addr = reachable(addr, host)
	if h, _, err := net.SplitHostPort(addr); err == nil && local(h) && host != "" && !local(host) {
		return ""
	}
	return addr
}

// local reports whether a host means the machine on which it is used.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
