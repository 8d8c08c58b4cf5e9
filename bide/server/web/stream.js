// The one stream of this tab: events of the session that is looked at, and hints about all others.
//
// It is read with fetch, since an EventSource can send no header, and never notices that a line has died.
import { effect, signal } from "@preact/signals";
import { half, Problem, reader, turnAway } from "./api.js";
import { HIDDEN_MS, RETRY_MS, SILENT_MS } from "./bounds.js";
import { Frames } from "./frames.js";

/** How the line is: `opening`, `open`, `broken` or `resting`, since a moment of this machine. */
export const line = signal({ state: "opening", since: Date.now() });

let followed = null; // {id, cursor() -> seq, take(events), glimpse(one), gone(problem)}
let open = null; // the AbortController of the stream that is open
let hurry = () => {}; // ends the wait before the next try
let resting = false;
const listeners = new Set(); // of hints: called with a set of ids, or null where anything may have changed

/** Follows one session from its cursor on, or none. */
export function follow(target) {
  followed = target;
  open?.abort();
  hurry();
}

/** Calls back with what has changed. Gives the way to stop that. */
export function onChanges(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Reads for as long as the page is there. */
export async function live() {
  watchTab();
  for (let tries = 0; ; ) {
    while (!reader.value || resting) await turn();
    const before = followed;
    const heard = await once();
    if (heard) tries = 0;
    if (followed !== before || resting || !reader.value) continue;
    mark("broken");
    await turn(RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)] * (0.8 + 0.4 * Math.random()));
  }
}

/** One stream, until it ends. Gives whether anything was heard. */
async function once() {
  const target = followed;
  const mine = new AbortController();
  open = mine;
  let heard = false;
  let timer = setTimeout(() => mine.abort(), SILENT_MS);
  try {
    const query = new URLSearchParams({ changes: "true", glimpses: "true" });
    if (target) {
      query.set("sessions", target.id);
      query.set("after", `${target.id}:${target.cursor()}`);
    }
    const answer = await fetch(`/v1/stream?${query}`, { headers: half(), cache: "no-store", redirect: "error", signal: mine.signal });
    if (!answer.ok) {
      refused(new Problem(await answer.json(), answer.status), answer.status, target);
      return false;
    }
    mark("open");
    const frames = new Frames();
    for (const bytes = answer.body.getReader(); ; ) {
      const { done, value } = await bytes.read();
      if (done) return heard;
      heard = true;
      clearTimeout(timer);
      timer = setTimeout(() => mine.abort(), SILENT_MS);
      deliver(frames.feed(value), target);
    }
  } catch {
    return heard; // the line, or somebody here, has cut it
  } finally {
    clearTimeout(timer);
    mine.abort();
  }
}

function deliver(frames, target) {
  const events = [];
  const glimpses = [];
  for (const { id, event, data } of frames) {
    if (event === "changes") {
      const said = JSON.parse(data);
      const changed = said.everything ? null : new Set(said.sessions);
      for (const listener of listeners) listener(changed);
    } else if (event === "glimpse") {
      glimpses.push(JSON.parse(data));
    } else if (id !== undefined) {
      events.push(JSON.parse(data));
    }
  }
  if (!target || target !== followed) return;
  if (events.length) target.take(events);
  for (const glimpse of glimpses) target.glimpse(glimpse);
}

function refused(problem, status, target) {
  if (status === 401) turnAway(problem);
  if (target && target === followed && status >= 400 && status < 500 && status !== 401) {
    followed = null;
    target.gone(problem);
  }
}

/** Waits until something happens, or for so long. */
function turn(ms) {
  return new Promise((go) => {
    const timer = ms === undefined ? 0 : setTimeout(go, ms);
    hurry = () => {
      clearTimeout(timer);
      go();
    };
  });
}

function mark(state) {
  if (line.value.state !== state) line.value = { state, since: Date.now() };
}

function watchTab() {
  let timer = 0;
  const look = () => {
    clearTimeout(timer);
    if (document.visibilityState === "hidden") {
      timer = setTimeout(() => {
        resting = true;
        mark("resting");
        open?.abort();
      }, HIDDEN_MS);
    } else if (resting) {
      resting = false;
      hurry();
    }
  };
  document.addEventListener("visibilitychange", look);
  addEventListener("online", () => hurry());
  effect(() => {
    if (reader.value) hurry();
    else open?.abort();
  });
  look();
}
