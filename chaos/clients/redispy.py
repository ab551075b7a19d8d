"""redispy.py shows redis-py's Lock to chaos (PROTOCOL.md), on the first server, which is all that it uses.

Its defaults know no timeout: the lock is kept until it is released, and a lost reply is waited for
for ever. With --best locks and sockets have timeouts, the lock is reacquired, and the server is asked
whether it is owned; the program's own clock has the deadline while the server does not answer.
"""

import sys
import time

import redis
from redis.exceptions import LockError, RedisError
from redis.lock import Lock

BEST = "--best" in sys.argv[1:]


class Session:
    """Session has one lock at a time. Times are in seconds."""

    def __init__(self, ttl_ms, addr, *_):
        host, _, port = addr.rpartition(":")
        self.ttl = int(ttl_ms) / 1000
        timeouts = {"socket_timeout": self.ttl / 2, "socket_connect_timeout": self.ttl / 2} if BEST else {}
        self.redis = redis.Redis(host=host, port=int(port), **timeouts)
        self.lock = self.until = None

    def acquire(self, name, wait_ms):
        self.lock = Lock(self.redis, name, timeout=self.ttl if BEST else None)
        end = time.monotonic() + int(wait_ms) / 1000
        while (began := time.monotonic()) < end:
            if self.lock.acquire(blocking=not BEST, blocking_timeout=None if BEST else end - began):
                self.until = began + self.ttl
                return "granted"
            time.sleep(0.02)
        return "failed held"

    def held(self):
        if not BEST:
            return "held"
        began = time.monotonic()
        try:
            if self.until - began < self.ttl / 2:
                self.lock.reacquire()
                self.until = began + self.ttl
            elif not self.lock.owned():
                return "lost to another"
        except LockError:
            return "lost to another"
        except RedisError:
            pass  # there is no answer: the deadline is all that is known
        left = int((self.until - time.monotonic()) * 1000)
        return f"held {left}" if left > 0 else "lost at its deadline"

    def release(self):
        self.lock.release()
        return "released"


for line in sys.stdin:
    request, *words = line.split()
    if request == "open":
        session = Session(*words)
        answer = f"ready redis-py {redis.__version__}, {'best settings' if BEST else 'defaults'}"
    else:
        try:
            answer = getattr(session, request)(*words)
        except (LockError, RedisError) as error:
            answer = "failed " + " ".join(f"{type(error).__name__}: {error}".split())[:400]
    print(answer, flush=True)
