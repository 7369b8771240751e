package app

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ratelimitFlags translates the environment of envoyproxy/ratelimit into flags of serve. Notes
// name what has no effect. Variables of Weir go on to work beside them.
func ratelimitFlags(environ []string) (flags, notes []string, err error) {
	e := ratelimitEnvironment{values: make(map[string]string)}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		e.values[name] = value
	}
	e.listeners()
	e.files()
	e.answers()
	e.security()
	e.level()
	if ignored := e.ignored(); len(ignored) > 0 {
		notes = append(notes, "these settings of envoyproxy/ratelimit have no effect here: "+strings.Join(ignored, ", "))
	}
	return e.flags, append(notes, e.notes...), e.err
}

// ratelimitEnvironment collects flags, and the first error.
type ratelimitEnvironment struct {
	values       map[string]string
	flags, notes []string
	err          error
}

// text returns a variable, or otherwise if it is empty.
func (e *ratelimitEnvironment) text(name, otherwise string) string {
	if v := e.values[name]; v != "" {
		return v
	}
	return otherwise
}

// is returns a variable that is true or false.
func (e *ratelimitEnvironment) is(name string) bool {
	on, err := strconv.ParseBool(e.text(name, "false"))
	if err != nil {
		e.fail("%s=%q in the environment: give true or false", name, e.values[name])
	}
	return on
}

func (e *ratelimitEnvironment) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

func (e *ratelimitEnvironment) set(flag, value string) {
	e.flags = append(e.flags, "--"+flag+"="+value)
}

// copy sets a flag to a variable, if that is not empty.
func (e *ratelimitEnvironment) copy(flag, name string) {
	if v := e.values[name]; v != "" {
		e.set(flag, v)
	}
}

// turn sets a flag if a variable is true.
func (e *ratelimitEnvironment) turn(flag, name string) {
	if e.is(name) {
		e.set(flag, "true")
	}
}

// listeners sets where to listen. Weir's own protocol stays on this machine, at any port.
func (e *ratelimitEnvironment) listeners() {
	at := func(host, port, usual string) string {
		return net.JoinHostPort(e.text(host, "0.0.0.0"), e.text(port, usual))
	}
	if e.values["GRPC_UDS"] != "" {
		e.fail("GRPC_UDS is not supported: give GRPC_HOST and GRPC_PORT")
	}
	e.set("envoy-addr", at("GRPC_HOST", "GRPC_PORT", "8081"))
	http := at("HOST", "PORT", "8080")
	if e.is("USE_PROMETHEUS") {
		http += "," + e.text("PROMETHEUS_ADDR", ":9090")
		if p := e.text("PROMETHEUS_PATH", "/metrics"); p != "/metrics" {
			e.fail("PROMETHEUS_PATH=%q is not supported: the metrics are at /metrics", p)
		}
	}
	e.set("envoy-http-addr", http)
	e.makeWay("admin-addr", "127.0.0.1", "8082", http)
	e.makeWay("health-addr", "127.0.0.1", "8083", http)
	e.set("grpc-addr", "127.0.0.1:0")
	e.set("http-addr", "127.0.0.1:0")
	e.turn("envoy-health-needs-config", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED")
	e.age()
}

// makeWay moves a listener of Weir that has a port by default, and that the environment of Weir does not name, to any
// port if an address of envoyproxy/ratelimit has that one.
func (e *ratelimitEnvironment) makeWay(flag, host, port, http string) {
	variable := "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if _, named := e.values[variable]; named {
		return
	}
	for _, taken := range append(strings.Split(http, ","), ":"+e.text("GRPC_PORT", "8081")) {
		if strings.HasSuffix(taken, ":"+port) {
			e.set(flag, net.JoinHostPort(host, "0"))
			e.notes = append(e.notes,
				fmt.Sprintf("port %s is taken by a setting of envoyproxy/ratelimit, so --%s is at any port: %s names another",
					port, flag, variable))
			return
		}
	}
}

// age sets how long connections are kept.
func (e *ratelimitEnvironment) age() {
	age := e.text("GRPC_MAX_CONNECTION_AGE", "24h")
	if d, err := time.ParseDuration(age); err != nil || d < time.Second {
		e.fail("GRPC_MAX_CONNECTION_AGE=%q in the environment: give 1s or more", age)
	}
	e.set("max-connection-age", age)
}

// files sets where the descriptors come from.
func (e *ratelimitEnvironment) files() {
	switch kind := e.text("CONFIG_TYPE", "FILE"); kind {
	case "FILE":
		e.set("envoy-config", path.Join(e.text("RUNTIME_ROOT", "/srv/runtime_data/current"), e.values["RUNTIME_SUBDIRECTORY"],
			e.text("RUNTIME_APPDIRECTORY", "config")))
		e.turn("envoy-ignore-dotfiles", "RUNTIME_IGNOREDOTFILES")
	case "GRPC_XDS_SOTW":
		e.set("envoy-xds", e.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"))
		e.turn("envoy-start-without-config", "FORCE_START_WITHOUT_INITIAL_CONFIG")
		e.copy("envoy-xds-node", "CONFIG_GRPC_XDS_NODE_ID")
		if e.is("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
			if e.values["CONFIG_GRPC_XDS_SERVER_TLS_CACERT"] == "" {
				e.fail("CONFIG_GRPC_XDS_SERVER_USE_TLS needs the authorities of the management server: give " +
					"CONFIG_GRPC_XDS_SERVER_TLS_CACERT")
			}
			e.copy("envoy-xds-ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT")
			e.copy("envoy-xds-cert", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT")
			e.copy("envoy-xds-key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY")
			e.copy("envoy-xds-server-name", "CONFIG_GRPC_XDS_SERVER_TLS_SAN")
		}
	default:
		e.fail("CONFIG_TYPE=%q in the environment: give FILE or GRPC_XDS_SOTW", kind)
	}
	e.turn("envoy-merge-domains", "MERGE_DOMAIN_CONFIG")
}

// answers sets what is answered.
func (e *ratelimitEnvironment) answers() {
	e.turn("envoy-shadow", "SHADOW_MODE")
	e.turn("envoy-quota", "QUOTA_MODE")
	e.turn("envoy-metadata", "RESPONSE_DYNAMIC_METADATA")
	e.turn("envoy-stop-when-over", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
	e.turn("envoy-headers", "LIMIT_RESPONSE_HEADERS_ENABLED")
	e.copy("envoy-near-limit", "NEAR_LIMIT_RATIO")
	names := []string{
		e.text("LIMIT_LIMIT_HEADER", "RateLimit-Limit"), e.text("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
		e.text("LIMIT_RESET_HEADER", "RateLimit-Reset"),
	}
	e.set("envoy-header-names", strings.Join(names, ","))
}

// security sets TLS. What would weaken it is refused.
func (e *ratelimitEnvironment) security() {
	if e.values["GRPC_CLIENT_TLS_SAN"] != "" {
		e.fail("GRPC_CLIENT_TLS_SAN is not supported: give a GRPC_CLIENT_TLS_CACERT that only the wanted clients have " +
			"certificates of")
	}
	if !e.is("GRPC_SERVER_USE_TLS") {
		return
	}
	e.copy("tls-cert", "GRPC_SERVER_TLS_CERT")
	e.copy("tls-key", "GRPC_SERVER_TLS_KEY")
	if e.values["GRPC_SERVER_TLS_CERT"] == "" {
		e.fail("GRPC_SERVER_USE_TLS needs a certificate: give GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	}
	if ca := e.values["GRPC_CLIENT_TLS_CACERT"]; ca != "" {
		e.set("client-ca", ca)
		e.set("client-cert", "required")
	}
}

// level sets the log level.
func (e *ratelimitEnvironment) level() {
	switch level := strings.ToLower(e.text("LOG_LEVEL", "warn")); level {
	case "debug", "info", "warn", "error":
		e.set("log-level", level)
	case "trace":
		e.set("log-level", "debug")
	case "warning":
		e.set("log-level", "warn")
	case "fatal", "panic":
		e.set("log-level", "error")
	default:
		e.fail("LOG_LEVEL=%.60q in the environment: give debug, info, warn or error", level)
	}
}

// ignored returns the variables that are set and have no effect.
func (e *ratelimitEnvironment) ignored() (out []string) {
	prefixes := []string{"REDIS_", "MEMCACHE_", "STATSD_", "TRACING_", "XDS_CLIENT_"}
	names := []string{
		"BACKEND_TYPE", "LOCAL_CACHE_SIZE_IN_BYTES", "EXPIRATION_JITTER_MAX_SECONDS", "CACHE_KEY_PREFIX", "USE_DOG_STATSD",
		"PROMETHEUS_MAPPER_YAML", "EXTRA_TAGS", "LOG_FORMAT", "DEBUG_HOST", "DEBUG_PORT", "CONFIG_GRPC_XDS_NODE_METADATA",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
		"GRPC_SERVER_TLS_CA_CERT",
		"GRPC_MAX_CONNECTION_AGE_GRACE", "DISABLE_STATS", "STATS_FLUSH_INTERVAL", "RUNTIME_WATCH_ROOT",
	}
	for name, value := range e.values {
		if value != "" && (slices.Contains(names, name) || slices.ContainsFunc(prefixes, func(p string) bool {
			return strings.HasPrefix(name, p)
		})) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
