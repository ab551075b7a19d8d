#!/usr/bin/env bash
# Runs the tests that are about servers on one of them: on-server.sh NAME=PATH. What they say is
# printed when all are over, because another server may be tested at the same time.
set -uo pipefail
cd "$(dirname "$0")/.."
export REDLOCK_TEST_SERVER="${1#*=}"

# The test that is skipped is about this process, and takes a minute.
said=$(
    exec 2>&1
    failed=0
    ${GO:-go} test -count=1 -skip '^TestManyLocksAreLostInTime$' ./integration ./pool ./fence ./cmd/redlock/internal/doctor ./internal/fleet || failed=1
    ${GO:-go} test -count=1 -run Doctor ./cmd/redlock || failed=1
    exit "$failed"
)
failed=$?
printf '%s\n%s\n' "$1" "$said"
exit "$failed"
