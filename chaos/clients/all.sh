#!/bin/sh
# Puts every client of this folder under the same faults, and prints the rows of docs/EVIDENCE.md.
# It needs Go, redis-server, redis-cli, and python3 with redis-py (Debian's python3-redis).
#
#   chaos/clients/all.sh                      # ten seconds of each of the faults
#   SEED=2 FAULTS=flush,proxy chaos/clients/all.sh
#   KEEP=/var/tmp/histories chaos/clients/all.sh   # and the histories, a folder for each client
set -eu
cd "$(dirname "$0")"
faults=${FAULTS:-pause-clients,kill-clients,pause-servers,kill-none,flush,proxy}
seed=${SEED:-1} seconds=${SECONDS_EACH:-10} python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
go build -o "$work" ./redquorum ./redsync ./redislock ./rueidislock
go -C .. build -o "$work/chaos" .

run() { # NODES NAME COMMAND
    [ -z "${KEEP:-}" ] || mkdir -p "$KEEP/$2"
    for fault in $(echo "$faults" | tr , ' '); do
        # Exit code 1 is a verdict, too. Without one, the reason is the last line of standard error.
        "$work/chaos" --table --scenario "$fault" --duration "${seconds}s" --ttl 1s --clients 6 --seed "$seed" \
            --nodes "$1" --client "$3" ${KEEP:+--keep "$KEEP/$2"} 2>"$work/stderr" || [ $? -eq 1 ] ||
            echo "| $2 | $fault | no verdict: $(tail -n 1 "$work/stderr") |"
    done
}

echo "| client | fault | granted | overlaps | noticed after | stale writes | refused | keys left |"
echo "|---|---|---|---|---|---|---|---|"
run 5 redquorum "exec $work/redquorum"
run 5 redquorum-best "exec $work/redquorum -best"
run 5 redsync "exec $work/redsync"
run 5 redsync-best "exec $work/redsync -best"
run 1 rueidislock "exec $work/rueidislock"
run 1 rueidislock-best "exec $work/rueidislock -best"
run 1 redislock "exec $work/redislock"
run 1 redislock-best "exec $work/redislock -best"
run 1 redispy "exec $python redispy.py"
run 1 redispy-best "exec $python redispy.py --best"
run 1 setnx "exec sh setnx.sh"
run 1 setnx-best "exec sh setnx.sh --best"
