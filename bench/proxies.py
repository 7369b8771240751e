#!/usr/bin/env python3
"""Measures the delay that a check adds to a request through a web proxy: nginx, HAProxy, Caddy
and Apache of Debian, each with and without the check, in turn. One client, one connection that
stays open, one request after the other. It starts all programs on loopback and ends them.

    go build -o /tmp/node ./cmd/node && bench/proxies.py /tmp/node [REQUESTS [ROUNDS]]
"""
import http.client
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

NODE, AGENT, CADDY_NODE, APP, FIRST = 20400, 20401, 20402, 20403, 20410
deploy = pathlib.Path(__file__).resolve().parent.parent / "deploy"

RULES = """version: 1
rules: [{name: all, key: [ip], limits: [{limit: 1000000000, window: 1h}]}]
"""

NGINX = """load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
daemon off; master_process off; pid DIR/nginx.pid; error_log stderr crit;
events { worker_connections 256; }
http {
  access_log off; keepalive_requests 10000000;
  client_body_temp_path DIR/b; proxy_temp_path DIR/p; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
  upstream weir { server 127.0.0.1:NODE; keepalive 16; }
  upstream app { server 127.0.0.1:APP; keepalive 16; }
  proxy_http_version 1.1; proxy_set_header Connection "";
  server { listen 127.0.0.1:APP; location / { return 200 served; } }
  server { listen 127.0.0.1:PLAIN; location / { proxy_pass http://app; } }
  server {
    listen 127.0.0.1:CHECKED;
    include DEPLOY/nginx/weir.conf;
    location / {
      auth_request /_weir;
      auth_request_set $weir_ratelimit $upstream_http_ratelimit;
      auth_request_set $weir_policy $upstream_http_ratelimit_policy;
      auth_request_set $weir_retry $upstream_http_retry_after;
      error_page 403 = @weir_denied;
      proxy_pass http://app;
    }
  }
}
"""

HAPROXY = """global
  lua-load-per-thread DEPLOY/haproxy/weir.lua
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend plain
  bind 127.0.0.1:PLAIN
  default_backend app
frontend lua
  bind 127.0.0.1:CHECKED
  http-request set-var(txn.weir_node) str(127.0.0.1:NODE)
  http-request lua.weir
  http-request return status 503 unless { var(txn.weir) -m str allowed }
  default_backend app
frontend spoe
  bind 127.0.0.1:OTHER
  filter spoe engine weir config DEPLOY/haproxy/weir-spoe.conf
  http-request return status 503 unless { var(txn.weir.result) -m str allowed }
  default_backend app
backend weir-agents
  mode tcp
  server node 127.0.0.1:AGENT
backend app
  server app 127.0.0.1:APP
"""

CADDY = """{
  admin off
  auto_https off
  storage file_system DIR
}
http://127.0.0.1:PLAIN {
  reverse_proxy 127.0.0.1:APP
}
http://127.0.0.1:CHECKED {
  forward_auth 127.0.0.1:CADDY_NODE {
    uri /v1/auth
  }
  reverse_proxy 127.0.0.1:APP
}
"""

APACHE = """ServerRoot DIR
DefaultRuntimeDir DIR
PidFile DIR/apache.pid
ServerName localhost
ErrorLog DIR/apache.log
Mutex pthread
User www-data
Group www-data
MaxKeepAliveRequests 0
Listen 127.0.0.1:PLAIN
Listen 127.0.0.1:CHECKED
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule setenvif_module /usr/lib/apache2/modules/mod_setenvif.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
LoadModule lua_module /usr/lib/apache2/modules/mod_lua.so
ProxyPass / http://127.0.0.1:APP/
SetEnvIf Request_URI ^ weir_node=127.0.0.1:NODE
<VirtualHost 127.0.0.1:CHECKED>
  ProxyPass / http://127.0.0.1:APP/
  LuaScope thread
  LuaHookAccessChecker DIR/weir.lua check
</VirtualHost>
"""


def main():
    node, requests, rounds = sys.argv[1], int((sys.argv + ["500"])[2]), int((sys.argv + ["", "10"])[3 if len(sys.argv) > 3 else -1])
    dir = tempfile.mkdtemp(prefix="weir-proxies")
    os.chmod(dir, 0o755)
    started, port = [], FIRST

    def start(config, *args, names=("PLAIN", "CHECKED")):
        nonlocal port
        ports = {n: port + i for i, n in enumerate(names)}
        port += len(names)
        text = config.replace("DEPLOY", str(deploy)).replace("DIR", dir).replace("CADDY_NODE", str(CADDY_NODE))
        for name, value in {**ports, "NODE": NODE, "AGENT": AGENT, "APP": APP}.items():
            text = text.replace(name, str(value))
        name = f"{dir}/{len(started)}.conf"
        pathlib.Path(name).write_text(text)
        started.append(subprocess.Popen([a.replace("CONFIG", name) for a in args], stderr=None if os.environ.get("SHOW") else subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        return ports

    try:
        shutil.copy(deploy / "apache/weir.lua", dir)
        for at, more in ((NODE, ["--spoe-listen", f"127.0.0.1:{AGENT}"]),
                         (CADDY_NODE, ["--auth-uri-header", "X-Forwarded-Uri", "--auth-method-header", "X-Forwarded-Method"])):
            start(RULES, node, "serve", "--rules", "CONFIG", "--http-addr", f"127.0.0.1:{at}", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "off",
                  "--health-addr", "off", "--auth-proxy", "127.0.0.1", *more, names=())
        nginx = start(NGINX, "nginx", "-c", "CONFIG", "-e", "stderr")
        haproxy = start(HAPROXY, "haproxy", "-db", "-f", "CONFIG", names=("PLAIN", "CHECKED", "OTHER"))
        caddy = start(CADDY, "caddy", "run", "--adapter", "caddyfile", "--config", "CONFIG")
        apache = start(APACHE, "apache2", "-X", "-f", "CONFIG")
        asked = [("nginx", nginx["PLAIN"], {"auth_request": nginx["CHECKED"]}),
                 ("HAProxy", haproxy["PLAIN"], {"Lua": haproxy["CHECKED"], "spoe": haproxy["OTHER"]}),
                 ("Caddy", caddy["PLAIN"], {"forward_auth": caddy["CHECKED"]}),
                 ("Apache", apache["PLAIN"], {"mod_lua": apache["CHECKED"]})]
        connections = {at: connect(at) for _, plain, ways in asked for at in (plain, *ways.values())}
        times = {at: [] for at in connections}
        for round in range(rounds + 1):
            for at, c in connections.items():
                taken = [ask(c) for _ in range(requests)]
                if round > 0:  # the first one warms up
                    times[at] += taken
        print("| proxy | way | p50 without | p50 with | added | p99 without | p99 with | added |\n|---|---|---|---|---|---|---|---|")
        for name, plain, ways in asked:
            for way, at in ways.items():
                row = []
                for part in (0.5, 0.99):
                    a, b = (sorted(times[x])[int(part * len(times[x]))] * 1e6 for x in (plain, at))
                    row += [a, b, b - a]
                print(f"| {name} | {way} | " + " | ".join(f"{v:.0f}" for v in row) + " |")
    finally:
        for p in started:
            p.kill()
            p.wait()
        shutil.rmtree(dir)


def connect(port):
    for _ in range(200):
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            c.connect()
            c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return c
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing listens at port {port}")


def ask(c):
    begin = time.perf_counter()
    c.request("GET", "/")
    r = c.getresponse()
    body = r.read()
    took = time.perf_counter() - begin
    if r.status != 200 or body != b"served":
        sys.exit(f"port {c.port} answers {r.status} {body}")
    return took


main()
