#!/bin/sh
# Works under a plain lock, as docs/KEYS.md has it, by redis-cli: lock.sh NAME SECONDS TTL, with the TTL
# in milliseconds and the servers in $REDLOCK_NODES. It exits with 75 if the lock is held, with 79 if the
# work has not ended with the TTL, which nothing extends here, and with 64 if URLs have a query, which
# redis-cli ignores. On a machine that sleeps the work can outlast the lock, because the clock of timeout
# stands still then; that of lock.py goes on.
case $REDLOCK_NODES in *\?*) exit 64 ;; esac
name=$1 ttl=$3
servers=$(echo "$REDLOCK_NODES" | tr , ' ') # commas or spaces are between the URLs
value=$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')
release='if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end'

now() { cut -d ' ' -f 1 /proc/uptime | tr -d . | sed 's/$/0/'; } # ms; goes on while the machine sleeps

ask() { # COMMAND...: an answer from each server, which it has a second for, or $LOCK_TIMEOUT
    for url in $servers; do
        timeout --foreground "${LOCK_TIMEOUT:-1}" redis-cli -u "$url" "$@" 2>&1 || echo failed
    done
}

began=$(now)
answers=$(ask set "$name" "$value" nx px "$ttl")
votes=$(echo "$answers" | grep -cx OK)
left=$((began + ttl - ttl / 100 - 2 - 10 - $(now))) # 10: the clock's step
if [ $((2 * votes)) -le "$(echo "$servers" | wc -w)" ] || [ "$left" -le 0 ]; then
    ask eval "$release" 1 "$name" "$value" >/dev/null # also where no answer came
    exit 75
fi
echo working
timeout -s KILL "$((left / 1000)).$(printf %03d $((left % 1000)))" sleep "$2" || exit 79 # the work
ask eval "$release" 1 "$name" "$value" >/dev/null
echo "done"
