#!/usr/bin/env node
// Works under a lock: hold.mjs NAME SECONDS. It exits with 79 if the lock is lost.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// underLock runs work(fence, signal) while the lock is held. The signal is an AbortSignal, for fetch
// and the like.
async function underLock(name, work) {
  const hold = spawn("redlock", ["hold", "--fenced", name], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(hold, "exit"), lost = new AbortController();
  let timer, first;
  const held = new Promise((resolve) => (first = resolve));
  const lines = createInterface({ input: hold.stdout });
  lines.on("line", (text) => {
    const line = JSON.parse(text);
    clearTimeout(timer); // a lock that is not renewed in time has ended, though no line says so
    if (line.event === "stop") return lost.abort();
    timer = setTimeout(() => lost.abort(), line.remaining_ms);
    first(line.fence);
  });
  lines.on("close", () => { clearTimeout(timer); lost.abort(); first(); });
  const fence = await held;
  try {
    if (fence !== undefined) await work(fence, lost.signal);
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
await underLock(name, async (fence, signal) => {
  console.log(`working with token ${fence}`); // give it to what is written to
  try {
    await sleep(seconds * 1000, undefined, { signal }); // the work
    console.log("done");
  } catch {
    console.log("stopped");
  }
});
