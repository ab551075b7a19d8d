#!/bin/sh
# Works under a lock: hold.sh NAME SECONDS. It exits with 79 if the lock is lost. Where a shell runs
# one command under the lock, "redlock run" does all of this, and more: it ends the command also when
# redlock itself hangs.
set -u
[ $# -eq 2 ] || { echo "usage: hold.sh NAME SECONDS" >&2; exit 64; }
pipes=$(mktemp -d) && mkfifo "$pipes/in" "$pipes/out" || exit
redlock hold --fenced "$1" <"$pipes/in" >"$pipes/out" &
hold=$!
exec 3>"$pipes/in" 4<"$pipes/out"
rm -r "$pipes"
read -r line <&4 || { wait "$hold"; exit; } # redlock has said why
fence=${line##*\"fence\":}
fence=${fence%%[!0-9]*}

echo "working with token $fence"    # give it to what is written to
sleep "$2" 3>&- 4<&- &              # the work; with pipe 3 open it would keep the lock
work=$!
while read -r line; do
    case $line in *'"stop"'*) break ;; esac
done <&4 3>&- && kill "$work" 2>/dev/null &
watcher=$!
wait "$work" && echo "done" || echo "stopped"
kill "$watcher" 2>/dev/null
exec 3>&-                           # releases the lock, as the death of this program does
wait "$hold"
