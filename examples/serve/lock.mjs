#!/usr/bin/env node
// Works under a lock of "redlock serve": lock.mjs NAME SECONDS. It exits with 75 if another has the lock,
// 69 if none is to be had, and 79 if the work was stopped: the lock was lost, or could not be kept.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { hostname } from "node:os";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

// It counts the time for which the machine sleeps, too: performance.now() stands still meanwhile on Linux.
const uptime = () => parseFloat(readFileSync("/proc/uptime", "latin1")) * 1000;
const now = process.platform === "linux" ? uptime : () => performance.now();

class Problem extends Error {
  constructor({ kind, detail }) {
    super(`${kind}: ${detail}`);
    this.kind = kind; // held, lost, no_quorum, ...
  }
}

class Lock {
  #session = "";
  #lost = new AbortController();
  #until = 0;
  #timer;
  signal = this.#lost.signal; // for fetch and the like; its timer is for comfort, held() decides

  static async acquire(name, wish = {}) {
    const lock = new Lock();
    const owner = `${hostname()} pid ${process.pid}`;
    lock.#session = (await lock.#ask("POST", "/v1/sessions", { body: { owner } })).session;
    const body = { name, fenced: true, wait_ms: 0, ...wish };
    const wanted = { body, key: randomUUID(), timeout: body.wait_ms + 5000 };
    // If no answer comes: with the same key, asking again takes no second lock.
    const ask = () => lock.#ask("POST", "/v1/locks", wanted);
    const lease = await ask().catch((e) => (e instanceof Problem ? Promise.reject(e) : ask()));
    lock.fence = lease.fence;
    lock.#keep(lease.asked + lease.valid_for_ms);
    lock.#follow();
    return lock;
  }

  // The times in an answer count from when it was asked for.
  async #ask(method, path, { body, key = "", timeout = 5000 } = {}) {
    const asked = now() - 10; // the clock's step
    const headers = { "Content-Type": "application/json", "Redlock-Session": this.#session, "Idempotency-Key": key };
    const socketPath = process.env.REDLOCK_SOCKET ?? "/run/redlock.sock";
    const response = await new Promise((resolve, reject) =>
      // No agent: it would keep the connection, which a daemon that ends closes just when it is used again.
      request({ socketPath, method, path, headers, agent: false, signal: AbortSignal.timeout(timeout) }, resolve)
        .on("error", reject)
        .end(body && JSON.stringify(body)));
    const answer = JSON.parse((await text(response)) || "{}");
    if (response.statusCode >= 400) throw new Problem(answer);
    return { asked, ...answer };
  }

  #keep(until) {
    this.#until = until;
    clearTimeout(this.#timer);
    if (!this.held()) return this.#lost.abort();
    this.#timer = setTimeout(() => this.#keep(this.#until), Math.min(until - now(), 250)); // its clock may stand still
  }

  held() {
    return now() < this.#until;
  }

  async #follow() {
    for (let seen = 0; this.held(); ) {
      try {
        const timeout = Math.ceil(this.#until - now());
        const state = await this.#ask("GET", `/v1/session?seen=${seen}&wait_ms=60000`, { timeout });
        const lease = state.leases[0];
        seen = state.version;
        this.#keep(lease && !state.ending && this.held() ? state.asked + lease.valid_for_ms : 0); // 0 ms: it is lost
      } catch (e) {
        if (e instanceof Problem) this.#keep(0); // the session has ended
        else await sleep(100); // the lock is good until its end, whether redlock answers or not
      }
    }
  }

  async release() {
    let held = this.held();
    this.#keep(0);
    // A problem is how a loss is told that came last. If no answer comes, the session ends by itself.
    await this.#ask("DELETE", "/v1/session").catch((e) => (held &&= !(e instanceof Problem)));
    if (!held) throw new Problem({ kind: "lost", detail: "the lock was lost, or could not be kept" });
  }
}

async function underLock(name, wish, work) {
  const lock = await Lock.acquire(name, wish);
  await work(lock).finally(() => lock.release());
}

const [name, seconds] = process.argv.slice(2);
if (!seconds) process.exit(console.error("usage: lock.mjs NAME SECONDS") ?? 64);
try {
  await underLock(name, { wait_ms: 3000 }, async (lock) => {
    console.log(`working with token ${lock.fence}`); // give it to what is written to
    await sleep(seconds * 1000, undefined, { signal: lock.signal }).catch(() => {}); // the work
    console.log(lock.held() ? "done" : "stopped");
  });
} catch (e) {
  console.error(`lock.mjs: ${e.message}`);
  process.exitCode = { held: 75, lost: 79 }[e.kind] ?? 69;
}
