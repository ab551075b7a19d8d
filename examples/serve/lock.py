#!/usr/bin/env python3
"""Works under a lock of "redlock serve": lock.py NAME SECONDS. It exits with 75 if another has the lock,
69 if none is to be had, and 79 if the work was stopped: the lock was lost, or could not be kept."""
import functools, http.client, json, os, socket, sys, threading, time, uuid
# It counts the time for which the machine sleeps, too.
clock = (lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class Problem(Exception):
    def __init__(self, kind, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind  # held, lost, no_quorum, ...


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.environ.get("REDLOCK_SOCKET", "/run/redlock.sock"))


class Lock:
    """with Lock("nightly", wait_ms=3000) as lock: the arguments are the fields of POST /v1/locks."""

    def __init__(self, name, **wish):
        self.wish = {"name": name, "fenced": True, "wait_ms": 0, **wish}
        self.session = ""

    def ask(self, method, path, body=None, timeout=5.0, key=""):
        asked, connection = clock(), Connection("redlock", timeout=timeout)
        headers = {"Content-Type": "application/json", "Redlock-Session": self.session, "Idempotency-Key": key}
        try:
            connection.request(method, path, json.dumps(body or {}), headers)
            response = connection.getresponse()
            answer = json.loads(response.read() or "{}")
        except (http.client.HTTPException, ValueError) as e:
            raise OSError(f"the answer was cut off: {e}") from e
        finally:
            connection.close()
        if response.status >= 400:
            raise Problem(answer["kind"], answer["detail"])
        return asked, answer  # the times in an answer count from when it was asked for

    def __enter__(self):
        owner = f"{socket.gethostname()} pid {os.getpid()}"
        self.session = self.ask("POST", "/v1/sessions", {"owner": owner})[1]["session"]
        wanted = "POST", "/v1/locks", self.wish, self.wish["wait_ms"] / 1000 + 5, str(uuid.uuid4())
        try:
            asked, lease = self.ask(*wanted)
        except OSError:  # no answer came: with the same key, asking again takes no second lock
            asked, lease = self.ask(*wanted)
        self.fence, self.until = lease["fence"], asked + lease["valid_for_ms"] / 1000
        threading.Thread(target=self.follow, daemon=True).start()
        return self

    def held(self):
        return clock() < self.until

    def follow(self):
        seen = 0
        while (left := self.until - clock()) > 0:
            try:
                asked, state = self.ask("GET", f"/v1/session?seen={seen}&wait_ms=60000", timeout=left)
                lease, seen = state["leases"][0], state["version"]
                self.until = 0 if state["ending"] else asked + lease["valid_for_ms"] / 1000  # 0 ms: it is lost
            except OSError:
                time.sleep(0.1)  # the lock is good until its end, whether redlock answers or not
            except (Problem, IndexError):  # the session has ended
                self.until = 0

    def __exit__(self, *_):
        held, self.until = self.held(), 0
        try:
            self.ask("DELETE", "/v1/session")
        except OSError:
            pass  # the session ends by itself
        except Problem:  # this is how a loss is told that came last
            held = False
        if not held:
            raise Problem("lost", "the lock was lost, or could not be kept")


def locked(name, **wish):
    """@locked("order:{0}") runs a function under the lock, which it gets behind its arguments."""
    def decorate(f):
        @functools.wraps(f)
        def run(*args):
            with Lock(name.format(*args), **wish) as lock:
                return f(*args, lock)
        return run
    return decorate


@locked("{0}", wait_ms=3000)
def work(name, seconds, lock):
    print(f"working with token {lock.fence}", flush=True)  # give it to what is written to
    end = clock() + float(seconds)
    while lock.held() and clock() < end:
        time.sleep(0.05)  # a step of the work
    print("done" if lock.held() else "stopped")


if len(sys.argv) != 3:
    sys.exit(print("usage: lock.py NAME SECONDS", file=sys.stderr) or 64)
try:
    work(*sys.argv[1:])
except (Problem, OSError) as e:
    print(f"lock.py: {e}", file=sys.stderr)
    sys.exit({"held": 75, "lost": 79}.get(getattr(e, "kind", ""), 69))
