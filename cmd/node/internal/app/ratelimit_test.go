package app

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Called as ratelimit the program serves by the environment of envoyproxy/ratelimit, and by
// Weir's for what that lacks.
func TestCalledRatelimit(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "config", "edge.yaml"),
		[]byte("domain: edge\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 2}}]"),
		0o600); err != nil {
		t.Fatal(err)
	}
	r := begin(t, World{Name: "/bin/ratelimit", Environ: []string{
		"RUNTIME_ROOT=" + root, "HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "LOG_LEVEL=info",
		"REDIS_URL=redis:6379",
		"WEIR_ADMIN_ADDR=off", "WEIR_HEALTH_ADDR=off",
	}})
	r.until("the node is ready")
	if said := r.err.String(); !strings.Contains(said, "have no effect here") || !strings.Contains(said, "REDIS_URL") {
		t.Error(said)
	}
	at := regexp.MustCompile(`"envoy_http":"([^"]+)"`).FindStringSubmatch(r.err.String())
	if at == nil {
		t.Fatal(r.err.String())
	}
	w, err := http.Post("http://"+at[1]+"/json", "application/json",
		strings.NewReader(`{"domain":"edge","hitsAddend":3,"descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	if w.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", w.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	r.signals <- syscall.SIGTERM
	r.end(ExitOK)
	// An image's entrypoint is /node, so a command of the original is its argument.
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"ratelimit", nil, "CONFIG_TYPE"},
		{"/node", []string{"/bin/ratelimit"}, "CONFIG_TYPE"},
		{"/bin/ratelimit", []string{"serve", "x"}, `takes no arguments, but "x" was given`},
		{"/node", []string{"/bin/ratelimit", "x"}, `there is no command "/bin/ratelimit"`},
	} {
		var said strings.Builder
		status := Run(t.Context(), c.args, World{Name: c.name, Out: &said, Err: &said, Environ: []string{"CONFIG_TYPE=x"}})
		if status != ExitUsage || !strings.Contains(said.String(), c.says) {
			t.Errorf("%s %q: status %d, want one that says %q\n%s", c.name, c.args, status, c.says, &said)
		}
	}
}

// What Envoy Gateway sets, with the flags that it becomes. Each flag is one of serve.
func TestRatelimitFlags(t *testing.T) {
	for what, x := range map[string]struct {
		environ, want []string
		notes         string
	}{
		"nothing": {nil, []string{
			"--envoy-addr=0.0.0.0:8081", "--envoy-http-addr=0.0.0.0:8080", "--grpc-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0",
			"--max-connection-age=24h",
			"--envoy-config=/srv/runtime_data/current/config",
			"--envoy-header-names=RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset", "--log-level=warn",
		}, ""},
		"Envoy Gateway": {[]string{
			"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
			"LOG_LEVEL=info",
			"USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001",
			"CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
			"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=/certs/tls.crt", "GRPC_SERVER_TLS_KEY=/certs/tls.key",
			"GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt",
			"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt",
			"CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key",
			"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379",
			"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:19001", "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		}, []string{
			"--envoy-addr=0.0.0.0:8081", "--envoy-http-addr=0.0.0.0:8080,:19001", "--grpc-addr=127.0.0.1:0",
			"--http-addr=127.0.0.1:0", "--max-connection-age=24h",
			"--envoy-xds=envoy-gateway:18001", "--envoy-start-without-config=true", "--envoy-xds-node=envoy-ratelimit",
			"--envoy-xds-ca=/certs/ca.crt", "--envoy-xds-cert=/certs/tls.crt", "--envoy-xds-key=/certs/tls.key",
			"--envoy-header-names=RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset", "--tls-cert=/certs/tls.crt",
			"--tls-key=/certs/tls.key", "--log-level=info",
		}, "GRPC_SERVER_TLS_CA_CERT, PROMETHEUS_MAPPER_YAML, REDIS_SOCKET_TYPE, REDIS_URL, RUNTIME_WATCH_ROOT"},
		"what has no effect": {[]string{
			"GRPC_MAX_CONNECTION_AGE_GRACE=1m", "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=1s", "DISABLE_STATS=true",
			"STATS_FLUSH_INTERVAL=1s", "LOG_LEVEL=fatal",
		}, []string{
			"--envoy-addr=0.0.0.0:8081", "--envoy-http-addr=0.0.0.0:8080", "--grpc-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0",
			"--max-connection-age=24h",
			"--envoy-config=/srv/runtime_data/current/config",
			"--envoy-header-names=RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset", "--log-level=error",
		}, "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL, DISABLE_STATS, GRPC_MAX_CONNECTION_AGE_GRACE, " +
			"STATS_FLUSH_INTERVAL"},
		"files with dots, at Weir's own ports": {[]string{"RUNTIME_IGNOREDOTFILES=true", "PORT=8082", "GRPC_PORT=8083"},
			[]string{
				"--envoy-addr=0.0.0.0:8083", "--envoy-http-addr=0.0.0.0:8082", "--admin-addr=127.0.0.1:0",
				"--health-addr=127.0.0.1:0",
				"--grpc-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0", "--max-connection-age=24h",
				"--envoy-config=/srv/runtime_data/current/config", "--envoy-ignore-dotfiles=true",
				"--envoy-header-names=RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset", "--log-level=warn",
			}, "port 8082 is taken by a setting of envoyproxy/ratelimit, so --admin-addr is at any port: WEIR_ADMIN_ADDR " +
				"names " +
				"another"},
		"metrics at a port of Weir's, which the environment moves": {[]string{
			"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:8082", "GRPC_PORT=8083", "WEIR_ADMIN_ADDR=off",
			"WEIR_HEALTH_ADDR=127.0.0.1:9999", "LOG_LEVEL=error",
		}, []string{
			"--envoy-addr=0.0.0.0:8083", "--envoy-http-addr=0.0.0.0:8080,:8082", "--grpc-addr=127.0.0.1:0",
			"--http-addr=127.0.0.1:0", "--max-connection-age=24h",
			"--envoy-config=/srv/runtime_data/current/config",
			"--envoy-header-names=RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset", "--log-level=error",
		}, ""},
		"all modes": {[]string{
			"SHADOW_MODE=1", "QUOTA_MODE=true", "RESPONSE_DYNAMIC_METADATA=true", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true",
			"LIMIT_RESPONSE_HEADERS_ENABLED=true",
			"LIMIT_RESET_HEADER=x-reset", "NEAR_LIMIT_RATIO=0.9", "MERGE_DOMAIN_CONFIG=true",
			"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", "HOST=10.0.0.1", "PORT=80",
			"GRPC_HOST=::1", "GRPC_PORT=81", "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=c", "GRPC_SERVER_TLS_KEY=k",
			"GRPC_CLIENT_TLS_CACERT=a", "LOG_LEVEL=WARNING",
		}, []string{
			"--envoy-addr=[::1]:81", "--envoy-http-addr=10.0.0.1:80", "--grpc-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0",
			"--envoy-health-needs-config=true", "--max-connection-age=24h",
			"--envoy-config=/srv/runtime_data/current/config", "--envoy-merge-domains=true", "--envoy-shadow=true",
			"--envoy-quota=true", "--envoy-metadata=true",
			"--envoy-stop-when-over=true", "--envoy-headers=true", "--envoy-near-limit=0.9",
			"--envoy-header-names=RateLimit-Limit,RateLimit-Remaining,x-reset",
			"--tls-cert=c", "--tls-key=k", "--client-ca=a", "--client-cert=required", "--log-level=warn",
		}, ""},
	} {
		flags, notes, err := ratelimitFlags(x.environ)
		if err != nil || !slices.Equal(flags, x.want) {
			t.Errorf("%s: %v\n%q, want\n%q", what, err, flags, x.want)
		}
		if all := strings.Join(notes, "\n"); !strings.Contains(all, x.notes) || (x.notes == "") != (all == "") {
			t.Errorf("%s: notes %q", what, notes)
		}
		if err := (&app{}).serveCommand().ParseFlags(flags); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRatelimitFlagsRefused(t *testing.T) {
	for _, x := range []struct{ environ, want string }{
		{"CONFIG_TYPE=CONSUL", `CONFIG_TYPE="CONSUL" in the environment: give FILE or GRPC_XDS_SOTW`},
		{"SHADOW_MODE=maybe", `SHADOW_MODE="maybe" in the environment: give true or false`},
		{"GRPC_UDS=/run/x", "GRPC_UDS is not supported"},
		{"GRPC_CLIENT_TLS_SAN=envoy", "GRPC_CLIENT_TLS_SAN is not supported"},
		{"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_USE_TLS needs a certificate"},
		{"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "give CONFIG_GRPC_XDS_SERVER_TLS_CACERT"},
		{"GRPC_MAX_CONNECTION_AGE=0", "give 1s or more"},
		{"LOG_LEVEL=loud", `LOG_LEVEL="loud" in the environment`},
	} {
		if _, _, err := ratelimitFlags(strings.Fields(x.environ)); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.environ, err)
		}
	}
}
