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

best = sys.argv[1] == "--best"
name, ttl, wait, server = sys.argv[2:6]
ttl, wait = int(ttl) / 1000, int(wait) / 1000  # seconds
host, _, port = server.rpartition(":")
timeouts = {"socket_timeout": ttl / 2, "socket_connect_timeout": ttl / 2} if best else {}
lock = Lock(redis.Redis(host=host, port=int(port), **timeouts), name, timeout=ttl if best else None)


def acquire():
    """acquire returns the moment before the lock was granted."""
    end = time.monotonic() + wait
    while (began := time.monotonic()) < end:
        if lock.acquire(blocking=not best, blocking_timeout=None if best else end - began):
            return began
        time.sleep(0.02)
    sys.exit("held")


began = acquire()
print(flush=True)
for _ in sys.stdin:
    if best:
        asked = time.monotonic()
        try:
            if asked - began > ttl / 2:
                lock.reacquire()
                began = asked
            elif not lock.owned():
                sys.exit("lost")
        except LockError:
            sys.exit("lost")
        except RedisError:
            pass  # there is no answer: the deadline is all that is known
        left = int((began + ttl - time.monotonic()) * 1000)
        if left <= 0:
            sys.exit("lost")
        print(left, flush=True)
    else:
        print(flush=True)
lock.release()
