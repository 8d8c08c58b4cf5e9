// What all views share: sessions, open questions and runtimes as the server last gave them, and where the page is.
import { computed, signal } from "@preact/signals";
import { all, ask, Problem, reader } from "./api.js";
import { CHANGED_MAX, LIST_PAGE, REFRESH_MS, REREAD_MS } from "./bounds.js";
import { onChanges } from "./stream.js";

/** The session in the address, or null: `#/s/ID`. */
export const route = signal(null);
/** By id, in the order of the list: newest first. Undefined until they were read. */
export const sessions = signal(undefined);
/** Cursor of the rest of the list; null at its end. */
export const rest = signal(null);
/** Questions that wait for a human, the most impactful first. Undefined until they were read. */
export const questions = signal(undefined);
/** By name, what a runtime can do. */
export const runtimes = signal(new Map());
/** Which shown word is wanted; empty: all. */
export const filter = signal("");
/** Why the lists could not be read, as a problem. */
export const trouble = signal(null);

export const session = computed(() => sessions.value?.get(route.value));

const changed = new Set();
let everything = true;
let due = 0;
let busy = false;

/** Takes the address as it is. */
export function navigate() {
  const found = /^#\/s\/([0-9a-f-]{36})$/.exec(location.hash);
  route.value = found ? found[1] : null;
}

/** Keeps the lists as the server has them. */
export function keepUp() {
  onChanges((some) => {
    if (some === null) everything = true;
    else for (const id of some) changed.add(id);
    soon();
  });
  setInterval(() => {
    everything = true;
    soon();
  }, REREAD_MS);
}

/** Reads all lists anew, soon. */
export function reread() {
  everything = true;
  soon();
}

/** Lists the sessions with this word only. */
export function show(word) {
  filter.value = word;
  sessions.value = undefined;
  reread();
}

/** Reads one more page of the list. */
export async function more() {
  const page = await ask("GET", `${listed()}&cursor=${encodeURIComponent(rest.value)}`);
  rest.value = page.next;
  merge(page.items);
}

/** One session as it is now; null when it is not there any more. */
export async function look(id) {
  try {
    const found = await ask("GET", `/v1/sessions/${id}`);
    merge([found]);
    return found;
  } catch (problem) {
    if (problem instanceof Problem && problem.code === "no_session") {
      remove(id);
      return null;
    }
    throw problem;
  }
}

/** Takes a session as the server gave it. */
export function merge(found) {
  const known = new Map(sessions.value ?? []);
  for (const one of found) known.set(one.id, one);
  sessions.value = new Map([...known].sort(([a], [b]) => (a < b ? 1 : -1))); // ids are in the order of time
}

function remove(id) {
  if (!sessions.value?.has(id)) return;
  const known = new Map(sessions.value);
  known.delete(id);
  sessions.value = known;
}

function listed() {
  return `/v1/sessions?limit=${LIST_PAGE}${filter.value ? `&shown=${filter.value}` : ""}`;
}

function soon() {
  if (!due) due = setTimeout(refresh, sessions.value ? REFRESH_MS : 0);
}

async function refresh() {
  due = 0;
  if (busy || !reader.value) return; // looks for more at its end; whoever signs in has all read
  busy = true;
  const [whole, some] = [everything || changed.size > CHANGED_MAX, [...changed]];
  everything = false;
  changed.clear();
  try {
    await Promise.all([whole ? readAll() : Promise.all(some.map(look)), readQuestions()]);
    trouble.value = null;
  } catch (problem) {
    trouble.value = problem;
    everything = true; // the next hint, or the clock, tries again
  } finally {
    busy = false;
    if (changed.size || (everything && !trouble.value)) soon();
  }
}

async function readAll() {
  const opened = route.value;
  const [page, found] = await Promise.all([ask("GET", listed()), all("/v1/runtimes")]);
  runtimes.value = new Map(found.map((one) => [one.name, one.capabilities]));
  rest.value = page.next;
  const there = new Map(page.items.map((one) => [one.id, one]));
  const oldest = page.items.at(-1)?.id ?? "";
  // What was read page by page stays; what should be on this page and is not there is gone.
  for (const [id, one] of sessions.value ?? []) if (!there.has(id) && page.next !== null && id < oldest) there.set(id, one);
  sessions.value = there;
  if (opened && !there.has(opened)) await look(opened);
}

async function readQuestions() {
  questions.value = await all("/v1/questions?status=open");
}
