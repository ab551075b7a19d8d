#!/bin/sh
# Works under a lock: hold.sh NAME SECONDS. It exits with 79 if the lock is lost. It needs Linux, because
# a shell has no other clock in common with redlock than /proc/uptime. Where a shell runs one command
# under the lock, "redlock run" does all of this, and more: it ends the command also when redlock itself
# hangs.
set -u
[ $# -eq 2 ] || { echo "usage: hold.sh NAME SECONDS" >&2; exit 64; }
dir=$(mktemp -d) && mkfifo "$dir/in" "$dir/out" || exit
trap 'rm -r "$dir"' EXIT

# now prints milliseconds of the clock of redlock. /proc/uptime has steps of 10 ms.
now() {
    read -r uptime _ </proc/uptime
    echo $(( ${uptime%.*} * 1000 + 1${uptime#*.} * 10 - 1000 + 10 ))
}

# number prints a number of a line: number NAME LINE.
number() {
    rest=${2##*\"$1\":}
    echo "${rest%%[!0-9]*}"
}

# note keeps the end of the lock from a line. More time than there was means that the uptime here is
# another.
note() {
    until=$(number until_ms "$1")
    case $1 in *'"event":"stop"'*) until=0 ;; esac
    [ $((until - $(now))) -le "$(number remaining_ms "$1")" ] || until=0
    echo "$until" >"$dir/new" && mv "$dir/new" "$dir/until"
}

# held is for before each step of the work.
held() { [ "$(now)" -lt "$(cat "$dir/until")" ]; }

redlock hold --fenced "$1" <"$dir/in" >"$dir/out" &
hold=$!
exec 3>"$dir/in" 4<"$dir/out"
read -r line <&4 || { wait "$hold"; exit; } # redlock has said why
note "$line"
{
    while read -r line; do note "$line"; done
    note '"until_ms":0,"remaining_ms":0' # the output has ended
} <&4 3>&- &
reader=$!
exec 4<&-

echo "working with token $(number fence "$line")" # give it to what is written to
end=$(($(now) + $2 * 1000))
result="done"
while [ "$(now)" -lt "$end" ]; do
    held || { result=stopped; break; }
    sleep 0.05 3>&-                 # a step of the work; with pipe 3 open it would keep the lock
done
echo "$result"
exec 3>&-                           # releases the lock, as the death of this program does
wait "$reader"
wait "$hold"
