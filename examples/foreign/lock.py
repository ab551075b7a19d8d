#!/usr/bin/env python3
"""Works under a plain lock, as docs/KEYS.md has it: lock.py NAME SECONDS TTL, with the TTL in
milliseconds and the servers in $REDLOCK_NODES. It exits with 75 if the lock is held, 79 if it is lost, and
64 if the URLs have more than it knows of."""
import os, socket, sys, time, urllib.parse

TIMEOUT = float(os.environ.get("LOCK_TIMEOUT", 0.5))  # seconds, for each server
ON_MATCH = b'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call'
EXTEND = ON_MATCH + b'("pexpire", KEYS[1], ARGV[2]) else return 0 end'
RELEASE = ON_MATCH + b'("del", KEYS[1]) else return 0 end'


def clock():
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine sleeps (Linux)


class Server:
    def __init__(self, url):
        at = urllib.parse.urlparse(url)
        if at.scheme != "redis" or not at.hostname or at.password or at.path.strip("/") or at.query:
            sys.exit(64)  # in another database, for instance, the lock would exclude no client
        self.address, self.connection = (at.hostname, at.port or 6379), None

    def ask(self, *words):
        """Returns the first line of the answer, and nothing where there is none in time."""
        try:
            if not self.connection:
                self.connection = socket.create_connection(self.address, TIMEOUT)
                self.answers = self.connection.makefile("rb")
            self.connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            line = self.answers.readline()
        except OSError:
            line = b""
        if not line:  # an answer that comes late must not be taken for the next one
            self.connection = None
        return line.strip()


class Lock:
    def __init__(self, servers, name, ttl):
        self.servers, self.name, self.ttl, self.until = servers, name.encode(), ttl, 0

    def vote(self, granted, *words):
        """Returns whether a majority grants, and some of the TTL is left then."""
        began = clock()
        votes = [s.ask(*words) for s in self.servers].count(granted)
        self.until = began + (self.ttl - self.ttl / 100 - 2) / 1000 if 2 * votes > len(self.servers) else 0
        return clock() < self.until

    def acquire(self):
        self.value = os.urandom(20).hex().encode()  # a new one, or a late release could delete the next lock
        if self.vote(b"+OK", b"SET", self.name, self.value, b"NX", b"PX", b"%d" % self.ttl):
            return True
        self.release()  # also where no answer came: the key may be there
        return False

    def extend(self):
        return self.vote(b":1", b"EVAL", EXTEND, b"1", self.name, self.value, b"%d" % self.ttl)

    def release(self):
        for s in self.servers:
            s.ask(b"EVAL", RELEASE, b"1", self.name, self.value)


urls = os.environ["REDLOCK_NODES"].replace(",", " ").split()
lock = Lock([Server(url) for url in urls], sys.argv[1], int(sys.argv[3]))
if not lock.acquire():
    sys.exit(75)
print("working", flush=True)
end = clock() + float(sys.argv[2])
due = clock() + lock.ttl / 3000
while clock() < end:
    time.sleep(0.02)  # a step of the work
    if clock() >= due:
        due = clock() + lock.ttl / 3000
        lock.extend()
    if clock() >= lock.until:
        print("stopped")
        sys.exit(79)
lock.release()
print("done")
