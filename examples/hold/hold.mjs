#!/usr/bin/env node
// Works under a lock: hold.mjs NAME SECONDS. It exits with 79 if the lock is lost.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { uptime } from "node:os";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// now returns milliseconds of the clock of redlock. process.hrtime is another one: it stands still while
// the machine sleeps. /proc/uptime has steps of 10 ms, os.uptime on other systems steps of up to a second.
const now = () => process.platform === "linux"
  ? Math.ceil(1000 * parseFloat(readFileSync("/proc/uptime", "utf8"))) + 10
  : Math.ceil(1000 * uptime()) + 1000;

// underLock runs work(fence, held, signal) while the lock is held. Call held() before each step: a
// program that was stopped may not have read the last line yet, and its timers are late. The signal is
// an AbortSignal, for fetch and the like.
async function underLock(name, work) {
  const hold = spawn("redlock", ["hold", "--fenced", name], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(hold, "exit"), lost = new AbortController();
  let timer, first, until = 0;
  const held = new Promise((resolve) => (first = resolve));
  const lines = createInterface({ input: hold.stdout });
  lines.on("line", (text) => {
    const line = JSON.parse(text);
    clearTimeout(timer); // a lock that is not renewed in time has ended, though no line says so
    until = line.event === "stop" ? 0 : line.until_ms;
    const left = until - now(); // more than there was means that the uptime here is another
    if (left <= 0 || left > line.remaining_ms) { until = 0; lost.abort(); }
    else timer = setTimeout(() => lost.abort(), left);
    first(line.fence);
  });
  lines.on("close", () => { clearTimeout(timer); until = 0; lost.abort(); first(); });
  const fence = await held;
  try {
    if (fence !== undefined) await work(fence, () => now() < until, lost.signal);
  } finally {
    hold.stdin.end(); // releases the lock, as the death of this program does
  }
  process.exitCode = (await ended)[0];
}

const [name, seconds, ...rest] = process.argv.slice(2);
if (seconds === undefined || rest.length > 0) {
  console.error("usage: hold.mjs NAME SECONDS");
  process.exit(64);
}
await underLock(name, async (fence, held, signal) => {
  console.log(`working with token ${fence}`); // give it to what is written to
  for (const end = now() + seconds * 1000; now() < end; ) {
    if (!held()) return console.log("stopped");
    await sleep(50, undefined, { signal }).catch(() => {}); // a step of the work
  }
  console.log("done");
});
