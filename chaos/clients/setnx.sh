#!/bin/sh
# The lock of the documentation of Redis' SET, by redis-cli, for chaos (PROTOCOL.md): SET NX PX with a
# random value on one server, the first, and a release that compares. With --best it is extended in
# the same way, and keeps its deadline by a clock of its own. Without, it tells none. A call that
# takes for longer than a second is given up: redis-cli itself waits for ever.
best=$1

now() { cut -d ' ' -f 1 /proc/uptime | tr -d . | sed 's/$/0/'; } # ms, of a clock that is not set

cli() { timeout --foreground 1 redis-cli -h "$host" -p "$port" "$@" 2>&1; }

# Unless both scripts compare, a holder whose lock has expired takes that of the next.
on_match='if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call'
release_script="$on_match(\"del\", KEYS[1]) else return 0 end"
extend_script="$on_match(\"pexpire\", KEYS[1], ARGV[2]) else return 0 end"

acquire() { # NAME WAIT_MS
    name=$1 end=$(($(now) + $2))
    value=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    while began=$(now); [ "$began" -lt "$end" ]; do
        if [ "$(cli set "$name" "$value" nx px "$ttl")" = OK ]; then
            until=$((began + ttl))
            echo granted
            return
        fi
        sleep 0.05
    done
    # A try whose answer was lost may have taken it.
    cli eval "$release_script" 1 "$name" "$value" >/dev/null
    echo failed held
}

held() {
    left=$((until - $(now)))
    if [ -z "$best" ]; then
        echo held
    elif [ "$left" -gt 0 ]; then
        echo "held $left"
    else
        echo lost at its deadline
    fi
}

extend() {
    began=$(now)
    case $(cli eval "$extend_script" 1 "$name" "$value" "$ttl") in
    1) until=$((began + ttl)) && held ;;
    0) echo lost by now ;;
    *) echo failed no answer ;;
    esac
}

release() {
    case $(cli eval "$release_script" 1 "$name" "$value") in
    1) echo released ;;
    0) echo failed lost by now ;;
    *) echo failed no answer ;;
    esac
    value=
}

while read -r request first second _; do
    case $request in
    open)
        ttl=$first host=${second%:*} port=${second##*:}
        features=- setting="as documented"
        [ -n "$best" ] && features=extend setting="best settings"
        echo "ready $features SET NX PX by $(redis-cli --version), $setting"
        ;;
    acquire) acquire "$first" "$second" ;;
    held | extend | release) "$request" ;;
    esac
done
[ -z "$value" ] || release >/dev/null # who asked is gone
