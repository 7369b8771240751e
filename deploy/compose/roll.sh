#!/bin/sh
# Replaces the members of docker-compose.yaml one by one, for another image or another
# configuration: each hands its counters over, and the next one follows when it is ready again.
# "docker-compose up -d" and "docker-compose restart" stop all of them at once: nobody decides meanwhile,
# and without WEIR_DATA_DIR all counters are lost. Run it where docker-compose.yaml is; COMPOSE is "docker-compose" unless it is
# given, such as COMPOSE="docker compose -p shop".
set -eu

for node in node-1 node-2 node-3; do
  echo "$node is replaced"
  ${COMPOSE:-docker-compose} up -d --no-deps --force-recreate "$@" "$node"
  tries=120
  # Ready means: it has found the others, and holds what it should.
  until ${COMPOSE:-docker-compose} exec -T "$node" /node health --ready >/dev/null 2>&1; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
      echo "$node is not ready after two minutes: see its log; the others were not touched" >&2
      exit 1
    fi
    sleep 1
  done
done
