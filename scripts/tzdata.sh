#!/bin/sh
# Replaces the embedded time zone database by the one of the Go installation.
set -eu
cd "$(dirname "$0")/../limiter/calendar"
from="$(go env GOROOT)/lib/time"
cp "$from/zoneinfo.zip" zoneinfo.zip
chmod 644 zoneinfo.zip
sed -n 's/^DATA=//p' "$from/update.bash" >version.txt
echo "time zone database $(cat version.txt)"
