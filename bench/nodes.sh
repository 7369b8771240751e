# For wire.sh and pgo.sh, which read it: that the nodes which are measured are those that
# were started. Another program at a node's port would be measured otherwise.

# free PORT...: fails where something answers at one of the ports of this machine.
free() {
  local port
  for port in "$@"; do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "something listens at 127.0.0.1:$port already: end it first, or it would be measured" >&2
      exit 1
    fi
  done
}

# ready PID HTTP LOG: waits until the node of that process says so, a minute at most.
ready() {
  for _ in $(seq 600); do
    if ! kill -0 "$1" 2>/dev/null; then
      echo "the node at $2 has ended: $(cat "$3")" >&2
      exit 1
    fi
    if curl -fs "http://$2/readyz" >/dev/null 2>&1 && kill -0 "$1" 2>/dev/null; then return; fi
    sleep 0.1
  done
  echo "the node at $2 is not ready: $(cat "$3")" >&2
  exit 1
}
