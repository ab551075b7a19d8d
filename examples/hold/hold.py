#!/usr/bin/env python3
"""Works under a lock: hold.py NAME SECONDS. It exits with 79 if the lock is lost."""
import json, subprocess, sys, threading, time
# The clock of redlock: on Linux CLOCK_BOOTTIME, on other systems CLOCK_MONOTONIC. time.monotonic is another
# one: it stands still while the machine sleeps.
CLOCK = getattr(time, "CLOCK_BOOTTIME", None) or time.CLOCK_MONOTONIC


def clock():
    return time.clock_gettime(CLOCK)


class Lock:
    def __init__(self, name):
        self.until = 0
        self.hold = subprocess.Popen(["redlock", "hold", "--fenced", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        self.fence = self.read().get("fence")
        if self.fence is None:  # redlock has said why
            sys.exit(self.hold.wait())
        threading.Thread(target=self.follow, daemon=True).start()
        return self

    def read(self):
        line = json.loads(self.hold.stdout.readline() or "{}")
        ends = line.get("event", "stop") == "stop"
        self.until = 0 if ends else line["until_ms"] / 1000
        return line

    def follow(self):
        while self.read():
            pass

    def held(self):  # call it before each step of the work
        return clock() < self.until

    def __exit__(self, *_):
        self.hold.stdin.close()  # releases the lock, as the death of this program does
        if code := self.hold.wait():
            sys.exit(code)


if len(sys.argv) != 3:
    print("usage: hold.py NAME SECONDS", file=sys.stderr)
    sys.exit(64)
with Lock(sys.argv[1]) as lock:
    print(f"working with token {lock.fence}", flush=True)  # give it to what is written to
    end = clock() + float(sys.argv[2])
    while clock() < end:
        if not lock.held():
            print("stopped")
            sys.exit(79)
        time.sleep(0.05)  # a step of the work
print("done")
