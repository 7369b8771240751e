package transport

import (
	"net"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/internal/frontend"
)

// profilesPath is the path below which profiles are served.
const profilesPath = "/debug/pprof/"

func overSocket(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok && at != nil
}

// hosts are the names and addresses by which a site may be addressed.
type hosts struct {
	names map[string]bool
	flag  string // of the node program, which adds names
}

func newHosts(flag string, names []string) *hosts {
	h := &hosts{map[string]bool{"localhost": true}, flag}
	for _, n := range names {
		h.names[bareHost(n)] = true
	}
	return h
}

// bareHost returns a host without its port, in the form in which hosts are compared.
func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip := net.ParseIP(host); ip != nil {
		return ip.String()
	}
	return host
}

// refusal describes why a request that is not addressed to one of the hosts is refused.
func (h *hosts) refusal(r *http.Request) string {
	return "the node is not asked by the name " + frontend.Quote(r.Host) +
		": ask by its address, or allow the name with " + h.flag
}

// allow reports whether a request is addressed to one of the hosts.
func (h *hosts) allow(r *http.Request) bool {
	host := bareHost(r.Host)
	ip := net.ParseIP(host)
	if h.names[host] || ip.IsLoopback() {
		return true
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && ip != nil && at.IP.Equal(ip)
}

// actionOf returns the action of a path of administration, for the auditor.
func actionOf(path string) string {
	if path == profilesPath {
		return "profile"
	}
	return strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(path, "/v1/"), "/"), "/", " ")
}
