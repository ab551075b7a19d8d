#!/usr/bin/env bash
# Builds redlock from the version of this action, and runs $LOCK_RUN under the lock $LOCK_NAME.
set -euo pipefail
# bash ignores the SIGINT of a cancelled job if the build then succeeds, and would start the command.
trap 'exit 130' INT

: "${LOCK_NAME:?the input name is empty: it names the lock}"
: "${LOCK_RUN:?the input run is empty: it is the command}"
: "${REDLOCK_NODES:?the input nodes is empty: it has the URLs of the Redis servers. Does the job see the secret?}"
root=$(cd "$(dirname "$0")/../.." && pwd)
temp=${RUNNER_TEMP:-$(mktemp -d)}
redlock=$temp/redlock
# For this machine, whatever the job builds. Without HOME, Go has no place for its caches.
HOME=${HOME:-$temp} GOOS='' GOARCH='' GOFLAGS='' GOWORK=off go -C "$root" build -o "$redlock" ./cmd/redlock
read -ra flags <<<"${LOCK_FLAGS:-}"
# exec, so that redlock gets the signal of a cancelled job.
exec "$redlock" run "${flags[@]}" "$LOCK_NAME" -- env -u REDLOCK_NODES bash -euo pipefail -c "$LOCK_RUN"
