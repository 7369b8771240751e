package httplimit

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/limiter"
)

// errPathLength is the error of a path longer than the decider accepts. It is answered
// with 414.
var errPathLength = fmt.Errorf("%w: the path is longer than %d bytes", limiter.ErrInvalid, limiter.MaxFieldBytes)

// normalPath returns the normalized path by which a request is counted, or an error for
// a path that a server behind may read in several ways.
//
// Routers disagree about "/a/../b", so with any interpretation a caller could be
// counted as one path and served as another; only attackers send such paths. An encoded
// slash stays encoded, since it does not separate segments for a router. Parameters
// ("/login;v=1") are removed, since some routers serve "/login".
func normalPath(r *http.Request) (string, error) {
	path := r.URL.Path
	var why string
	switch {
	case strings.IndexByte(r.URL.RawPath, '#') >= 0:
		// EscapedPath would encode it. Proxies such as nginx end the path there.
		why = "has a \"#\", which only a fragment begins with"
	case r.URL.RawPath == "" && strings.IndexByte(path, '%') < 0:
		why = trick(path) // nothing is encoded
		path = withoutParameters(path)
	default:
		raw := r.URL.EscapedPath()
		if len(raw) > 3*limiter.MaxFieldBytes { // decoding shortens it to a third at most
			return "", errPathLength
		}
		why = hiddenTrick(raw)
		path = decodeButSlash(withoutParameters(raw))
	}
	if why != "" {
		return "", fmt.Errorf("%w: the path %s, which a handler behind may read as another path", limiter.ErrInvalid, why)
	}
	if path == "" {
		return "/", nil // CONNECT, or a URL that is only a host
	}
	if !clean(path) {
		path = squeeze(path)
	}
	return path, nil
}

// clean reports whether squeeze would change nothing.
func clean(path string) bool {
	return path == "/" || !strings.HasSuffix(path, "/") && !strings.Contains(path, "//")
}

// squeeze replaces several slashes by one and removes those at the end.
func squeeze(path string) string {
	b := make([]byte, 0, len(path))
	for i := range len(path) {
		if path[i] != '/' || len(b) == 0 || b[len(b)-1] != '/' {
			b = append(b, path[i])
		}
	}
	if len(b) > 1 && b[len(b)-1] == '/' {
		b = b[:len(b)-1]
	}
	return string(b)
}

// withoutParameters removes what follows a semicolon from each segment.
func withoutParameters(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	b := make([]byte, 0, len(path))
	skip := false
	for i := range len(path) {
		switch path[i] {
		case ';':
			skip = true
		case '/':
			skip = false
		}
		if !skip {
			b = append(b, path[i])
		}
	}
	return string(b)
}

// decodeButSlash decodes percent-encoding, except of a slash, which becomes %2F.
func decodeButSlash(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if decoded, ok := hexByte(s[i+1:]); ok {
				i += 2
				if c = decoded; c == '/' {
					b = append(b, "%2F"...)
					continue
				}
			}
		}
		b = append(b, c)
	}
	return string(b)
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// patternPath returns the path of the router's pattern, without method and host, or an
// empty string if there is none.
func patternPath(r *http.Request) string {
	if i := strings.IndexByte(r.Pattern, '/'); i >= 0 {
		return r.Pattern[i:]
	}
	return ""
}
