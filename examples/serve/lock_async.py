#!/usr/bin/env python3
"""Works under a lock of "redlock serve", with asyncio: lock_async.py NAME SECONDS. It exits with 75 if
another has the lock, 69 if none is to be had, and 79 if the work was stopped: the lock was lost, or
could not be kept. It needs Python 3.11."""
import asyncio, contextlib, json, os, socket, sys, time, uuid
# It counts the time for which the machine sleeps, too. asyncio's own stands still meanwhile on Linux.
clock = (lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic

class Problem(Exception):
    def __init__(self, kind, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind  # held, lost, no_quorum, ...


class Lock:
    """async with Lock("nightly", wait_ms=3000) as lock: the arguments are the fields of POST /v1/locks.
    The body is cancelled when the lock is lost or its end has come, and Problem raised."""

    def __init__(self, name, **wish):
        self.wish = {"name": name, "fenced": True, "wait_ms": 0, **wish}
        self.session = ""

    async def ask(self, method, path, body=None, timeout=5.0, key=""):
        asked, text = clock(), json.dumps(body or {}).encode()
        head = (f"{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
                f"Redlock-Session: {self.session}\r\nIdempotency-Key: {key}\r\n\r\n")
        async with asyncio.timeout(timeout):  # TimeoutError is an OSError
            reader, writer = await asyncio.open_unix_connection(os.environ.get("REDLOCK_SOCKET", "/run/redlock.sock"))
            try:
                writer.write(head.encode() + text)
                status, _, rest = (await reader.read()).partition(b"\r\n")
            finally:
                writer.close()
        try:
            answer = json.loads(rest.partition(b"\r\n\r\n")[2] or "{}")
            is_problem = int(status.split()[1]) >= 400
        except (ValueError, IndexError) as e:
            raise OSError("the answer was cut off") from e
        if is_problem:
            raise Problem(answer["kind"], answer["detail"])
        return asked, answer  # the times in an answer count from when it was asked for

    async def __aenter__(self):
        owner = f"{socket.gethostname()} pid {os.getpid()}"
        self.session = (await self.ask("POST", "/v1/sessions", {"owner": owner}))[1]["session"]
        wanted = "POST", "/v1/locks", self.wish, self.wish["wait_ms"] / 1000 + 5, str(uuid.uuid4())
        try:
            asked, lease = await self.ask(*wanted)
        except OSError:  # no answer came: with the same key, asking again takes no second lock
            asked, lease = await self.ask(*wanted)
        self.fence = lease["fence"]
        self.until = asked + lease["valid_for_ms"] / 1000
        self.end = await asyncio.timeout(None).__aenter__()
        self.tasks = [asyncio.create_task(self.follow()), asyncio.create_task(self.watch())]
        return self

    def held(self):
        return clock() < self.until

    async def watch(self):
        while self.held():
            await asyncio.sleep(min(self.until - clock(), 0.25))  # timers stand still in sleep, too
        self.end.reschedule(0)  # cancels the body

    async def follow(self):
        seen = 0
        while (left := self.until - clock()) > 0:
            try:
                asked, state = await self.ask("GET", f"/v1/session?seen={seen}&wait_ms=60000", timeout=left)
                lease, seen = state["leases"][0], state["version"]
                self.until = 0 if state["ending"] else asked + lease["valid_for_ms"] / 1000  # 0 ms: it is lost
            except OSError:
                await asyncio.sleep(0.1)  # the lock is good until its end, whether redlock answers or not
            except (Problem, IndexError):  # the session has ended
                self.until = 0

    async def __aexit__(self, *error):
        [task.cancel() for task in self.tasks]
        held = self.held()
        try:
            await self.end.__aexit__(*error)
        except TimeoutError:
            held = False
        try:
            with contextlib.suppress(OSError):  # the session ends by itself
                await self.ask("DELETE", "/v1/session")
        except Problem:  # this is how a loss is told that came last
            held = False
        if not held:
            raise Problem("lost", "the lock was lost, or could not be kept") from None


async def main(name, seconds):
    try:
        async with Lock(name, wait_ms=3000) as lock:
            print(f"working with token {lock.fence}", flush=True)  # give it to what is written to
            try:
                await asyncio.sleep(float(seconds))  # the work
                print("done" if lock.held() else "stopped")
            except asyncio.CancelledError:
                print("stopped")
                raise
    except (Problem, OSError) as e:
        print(f"lock_async.py: {e}", file=sys.stderr)
        return {"held": 75, "lost": 79}.get(getattr(e, "kind", ""), 69)


if len(sys.argv) != 3:
    sys.exit(print("usage: lock_async.py NAME SECONDS", file=sys.stderr) or 64)
sys.exit(asyncio.run(main(*sys.argv[1:])))
