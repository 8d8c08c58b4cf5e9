// What was typed and not yet answered for, kept in the browser: a reload, a cut line or a refusal loses no word.
import { signal } from "@preact/signals";
import { ask } from "./api.js";
import { DRAFT_MS } from "./bounds.js";

const DRAFT = "bide.draft.";
const SENT = "bide.sent."; // each by itself: other tabs have theirs

/** What is on its way: `{id, session, body, at, state, problem}`; `state`: sending, unsure or refused. */
export const outbox = signal(load());

const pending = new Map(); // name -> what to store, once the keys rest
let timer = 0;
addEventListener("pagehide", flush);
addEventListener("visibilitychange", flush);

/** The draft of that name, as whatever was kept; undefined when there is none. */
export function draft(name) {
  return pending.has(name) ? pending.get(name) : read(DRAFT + name);
}

/** Keeps a draft; undefined lets it go. */
export function keep(name, value) {
  pending.set(name, value);
  clearTimeout(timer);
  timer = setTimeout(flush, DRAFT_MS);
}

function flush() {
  clearTimeout(timer);
  for (const [name, value] of pending) write(DRAFT + name, value);
  pending.clear();
}

/** A new id for an input, in the order of time. What is sent twice under one id is one input. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is not to be had over plain http
  let at = Date.now();
  for (let i = 5; i >= 0; i--, at = Math.floor(at / 256)) bytes[i] = at % 256;
  bytes[6] = 0x70 | (bytes[6] & 0x0f);
  bytes[8] = 0x80 | (bytes[8] & 0x3f);
  const digits = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Sends an input; until it is answered for it stands in the outbox. Never throws. */
export function send(session, body) {
  return post({ id: newId(), session, body, at: Date.now(), state: "sending" });
}

/** Sends once more what nobody knows the fate of, or what was refused. With the same id it is done once. */
export function sendAgain(item) {
  return post({ ...item, state: "sending", problem: undefined });
}

/** Takes an item out of the outbox. */
export function drop(id) {
  outbox.value = outbox.value.filter((one) => one.id !== id);
  write(SENT + id, undefined);
}

async function post(item) {
  put(item);
  flush();
  try {
    const { inputs } = await ask("POST", `/v1/sessions/${item.session}/events`, { body: { events: [{ ...item.body, id: item.id }] } });
    drop(item.id);
    return inputs[0];
  } catch (problem) {
    const { detail, hint } = problem;
    put({ ...item, state: problem.unsure ? "unsure" : "refused", problem: { detail, hint } });
    return null;
  }
}

function put(item) {
  outbox.value = [...outbox.value.filter((one) => one.id !== item.id), item].sort((a, b) => a.at - b.at);
  write(SENT + item.id, item);
}

function load() {
  const found = Object.keys(localStorage).filter((name) => name.startsWith(SENT)).map(read).filter(Boolean);
  return found.map((one) => (one.state === "sending" ? { ...one, state: "unsure" } : one)).sort((a, b) => a.at - b.at);
}

// What another tab has settled is settled.
addEventListener("storage", ({ key, newValue }) => {
  if (key?.startsWith(SENT) && newValue === null) outbox.value = outbox.value.filter((one) => SENT + one.id !== key);
});

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? undefined;
  } catch {
    return undefined;
  }
}

function write(name, value) {
  try {
    if (value === undefined) localStorage.removeItem(name);
    else localStorage.setItem(name, JSON.stringify(value));
  } catch {
    // the browser keeps nothing: it stays in this tab
  }
}
