#!/bin/sh
# Works under a lock of "redlock serve": lock.sh NAME SECONDS. It exits with 75 if another has the lock,
# 69 if none is to be had, and 79 if the work was stopped: the lock was lost, or could not be kept. Where
# a shell runs one command under a lock, "redlock run" does all of this, and also ends the command when
# the shell is killed. It needs curl, and /proc/uptime for a clock that nobody sets.
set -u
[ $# = 2 ] || { echo "usage: lock.sh NAME SECONDS" >&2; exit 64; }
case $1 in *[\"\\]*) echo "lock.sh: NAME stands in JSON, and may have neither quotes nor backslashes" >&2; exit 64 ;; esac
session=

# ask PATH [ARGUMENT OF CURL...] leaves $answer, and in $asked when it was asked for: the times in the
# answer count from then. It fails if there is none.
ask() {
    path=$1
    shift
    asked=$(($(now) - 1)) # the step of the clock
    answer=$(curl -s --unix-socket "${REDLOCK_SOCKET:-/run/redlock.sock}" -H "Redlock-Session: $session" \
        -H "Content-Type: application/json" "$@" "http://redlock$path")
}

# now prints hundredths of a second.
now() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}"
}

# field NAME prints what a field of $answer has, text or number.
field() {
    rest=${answer#*"\"$1\":"}
    [ "$rest" = "$answer" ] && return
    rest=${rest#\"}
    echo "${rest%%[\",\}]*}"
}

refused() {
    echo "lock.sh: ${answer:-redlock does not answer}" >&2
    [ "$(field kind)" = held ] && exit 75
    exit 69
}

ask /v1/sessions -m 5 -d "{\"owner\":\"$(hostname) pid $$\"}" || refused
session=$(field session)
[ "$session" ] || refused
tries=2
until ask /v1/locks -m 8 -H "Idempotency-Key: $$" -d "{\"name\":\"$1\",\"fenced\":true,\"wait_ms\":3000}"; do
    tries=$((tries - 1)) # with the same key, asking again takes no second lock
    [ $tries -gt 0 ] || refused
done
fence=$(field fence)
[ "$fence" ] || refused
end=$((asked + $(field valid_for_ms) / 10))

echo "working with token $fence" # give it to what is written to
sleep "$2" &                     # the work
work=$!
seen=0 code=0
while kill -0 $work 2>/dev/null && [ "$(now)" -lt $end ]; do
    ask "/v1/session?seen=$seen&wait_ms=200" -m 0.5 || { sleep 0.1; continue; } # good until its end, all the same
    case $answer in
    *'"ending":false'*'"valid_for_ms":'*) seen=$(field version) end=$((asked + $(field valid_for_ms) / 10)) ;; # 0 ms: it is lost
    *) end=0 ;; # redlock ends, or the session has ended
    esac
done
if [ "$(now)" -lt $end ]; then
    echo "done"
else
    kill $work 2>/dev/null
    echo "stopped"
    code=79
fi
ask /v1/session -m 5 -X DELETE # says if the lock was lost; if it does not answer, the session ends by itself
[ "$(field kind)" ] && code=79
exit $code
