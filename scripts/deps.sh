#!/usr/bin/env bash
# Installs the programs that `make test` needs and this machine lacks. With
# apt-get and as root it does so by itself; otherwise it says what to install.
#
#   scripts/deps.sh [packages]    with what `make packages-test` needs besides
set -euo pipefail

# Program, Debian package, what it is for.
needs=(
  "git git 'make generated' compares before and after"
  "gcc build-essential the race detector"
  "curl curl 'node demo' says how to ask it with curl, and a test does"
  "protoc protobuf-compiler 'make generated' makes the wire's code anew"
  "redis-server redis-server tests against a real Redis"
)
if [ "$(uname -s)" = Linux ]; then
  needs+=(
    "ip iproute2 tests in network namespaces"
    "dnsmasq dnsmasq-base tests of members that find each other by a name of DNS"
    "promtool prometheus the alerts are tested with it"
    "mkdocs mkdocs the documentation is made into a site with it"
    "chromium chromium a test looks at that site with it"
    "systemd-analyze systemd it checks the unit of the packages"
    "groff groff-base it reads the manual pages"
    "chrt util-linux the attackers of chaos get only the time that nobody else wants"
  )
fi
# Debian package, how to see that it is there: clients of the Redis protocol, and a part of nginx.
libraries=()
if [ "$(uname -s)" = Linux ]; then
  needs+=(
    "php php-cli a client of the Redis protocol is written in it"
    "nginx nginx-light it asks a node about each request"
    "haproxy haproxy it asks a node about each request"
    "caddy caddy it asks a node about each request"
    "varnishd varnish it asks a node about each request"
    "apache2 apache2-bin it asks a node about each request"
    "mypy mypy the types of examples/python are checked with it"
  )
  libraries=(
    "mkdocs-material|test -e /usr/share/mkdocs/themes/material"
    "python3-redis|/usr/bin/python3 -c 'import redis'"
    "python3-fastapi|/usr/bin/python3 -c 'import fastapi'"
    "uvicorn|/usr/bin/python3 -c 'import uvicorn'"
    "python3-flask|/usr/bin/python3 -c 'import flask'"
    "ruby-redis|ruby -e 'require \"redis\"'"
    "lua-socket|test -e /usr/share/lua/5.3/socket/http.lua"
    "libnginx-mod-http-lua|test -e /usr/lib/nginx/modules/ngx_http_lua_module.so"
    "php-redis|php -r 'exit(extension_loaded(\"redis\") ? 0 : 1);'"
  )
fi
if [ "${1:-}" = packages ]; then
  needs+=(
    "mmdebstrap mmdebstrap clean systems of Debian are made with it"
    "zsh zsh it reads completions"
    "fish fish it reads completions"
  )
fi
if docker info >/dev/null 2>&1; then
  needs+=("busybox busybox-static a stand-in for the image golang:1.26, where that cannot be pulled")
fi

PATH="$PATH:/usr/sbin:/sbin"
packages=()
reasons=()
for need in "${needs[@]}"; do
  read -r program package reason <<<"$need"
  if ! command -v "$program" >/dev/null; then
    packages+=("$package")
    reasons+=("  $program (Debian package $package): $reason")
  fi
done

for library in "${libraries[@]}"; do
  IFS='|' read -r package check <<<"$library"
  if ! bash -c "$check" >/dev/null 2>&1; then
    packages+=("$package")
    reasons+=("  Debian package $package: a test needs it")
  fi
done

if [ ${#packages[@]} -eq 0 ]; then
  exit 0
fi

echo "missing:"
printf '%s\n' "${reasons[@]}"
if ! command -v apt-get >/dev/null; then
  echo "This is no Debian: install them with this system's package manager, then run make again." >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "Not root: run 'sudo apt-get update && sudo apt-get install ${packages[*]}', then make again." >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends "${packages[@]}"
