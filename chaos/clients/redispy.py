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


def clock():
    """The clock of deadlines, in seconds. It goes on while the process is stopped."""
    return time.monotonic()


def one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


class Session:
    """Session has one lock at a time. Times are in seconds."""

    def __init__(self, ttl, addr):
        host, _, port = addr.rpartition(":")
        self.ttl = ttl
        timeouts = {"socket_timeout": ttl / 2, "socket_connect_timeout": ttl / 2} if BEST else {}
        self.redis = redis.Redis(host=host, port=int(port), **timeouts)
        self.lock = None
        self.until = None  # the deadline; None if none is known

    def acquire(self, name, wait_ms):
        wait = int(wait_ms) / 1000
        try:
            if not BEST:
                self.lock = Lock(self.redis, name)
                return "granted" if self.lock.acquire(blocking_timeout=wait) else "failed held"
            self.lock = Lock(self.redis, name, timeout=self.ttl)
            end = clock() + wait
            while clock() < end:
                began = clock()
                if self.lock.acquire(blocking=False):
                    self.until = began + self.ttl
                    return "granted"
                time.sleep(0.02)
            return "failed held"
        except RedisError as error:
            return "failed " + one_line(error)

    def held(self):
        if not BEST:
            return "held"
        try:
            if not self.lock.owned():
                return "lost because the key has another value or none"
        except RedisError:
            pass  # there is no answer: the deadline is all that is known
        left = int((self.until - clock()) * 1000)
        return f"held {left}" if left > 0 else "lost at its deadline"

    def extend(self):
        began = clock()
        try:
            self.lock.reacquire()
            self.until = began + self.ttl
        except LockError as error:
            self.until = began
            return "lost " + one_line(error)
        except RedisError as error:
            return "failed " + one_line(error)
        return self.held()

    def release(self):
        try:
            self.lock.release()
        except (LockError, RedisError) as error:
            return "failed " + one_line(error)
        finally:
            self.lock = self.until = None
        return "released"


def main():
    session = None
    for line in sys.stdin:
        request, *words = line.split()
        if request == "open":
            session = Session(int(words[0]) / 1000, words[1])
            setting = "best settings" if BEST else "defaults"
            answer = f"ready {'extend' if BEST else '-'} redis-py {redis.__version__}, {setting}"
        else:
            answer = getattr(session, request)(*words)
        print(answer, flush=True)
    if session and session.lock:
        session.release()  # who asked is gone


main()
