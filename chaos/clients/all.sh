#!/bin/sh
# Puts other libraries under the same faults, and prints the rows of docs/EVIDENCE.md. It needs Go,
# redis-server, and Debian's python3-redis.
#
#   chaos/clients/all.sh                      # ten seconds of each of the faults
#   SEED=2 FAULTS=flush,proxy chaos/clients/all.sh
set -eu
cd "$(dirname "$0")"
faults=${FAULTS:-pause-clients,kill-clients,pause-servers,kill-none,flush,proxy}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
go -C .. build -o "$work/chaos" .

echo "| client | fault | granted | overlaps | noticed after | stale writes | refused | keys left |"
echo "|---|---|---|---|---|---|---|---|"
for client in redquorum redsync rueidislock redislock "exec /usr/bin/python3 redispy.py -" setnx; do # -, or --best
    nodes=1
    case $client in redquorum | redsync) nodes=5 ;; esac
    for client in "$client" "$client-best"; do
        for fault in $(echo "$faults" | tr , ' '); do
            # Exit code 1 is a verdict, too. Without one, the reason is the last line of standard error.
            "$work/chaos" --table --scenario "$fault" --duration "${SECONDS_EACH:-10}s" --ttl 1s --clients 6 \
                --seed "${SEED:-1}" --nodes $nodes --client "$client" 2>"$work/stderr" || [ $? -eq 1 ] ||
                echo "| $client | $fault | no verdict: $(tail -n 1 "$work/stderr") |"
        done
    done
done
