// Moments and amounts as people read them, in the viewer's own zone; ages by the server's clock.
import { signal } from "@preact/signals";
import { TICK_MS } from "./bounds.js";

let ahead = 0; // how far the server's clock is ahead of this one, in milliseconds

/** The moment that it is now, by the server's clock; moves on by itself. */
export const now = signal(Date.now());
setInterval(tick, TICK_MS);

/** Takes the server's clock from an answer. Its header has whole seconds, so less than two of them say nothing. */
export function hear(answer) {
  const said = Date.parse(answer.headers.get("date") ?? "");
  if (Number.isNaN(said)) return;
  const found = said - Date.now();
  ahead = Math.abs(found) < 2_000 ? 0 : found;
  tick();
}

export function tick() {
  now.value = Date.now() + ahead;
}

/** A length of time, roughly: `40 s`, `3 min`, `2 h`, `5 d`. */
export function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3_600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/** How long ago a moment of the server was. */
export function since(moment) {
  return span((now.value - Date.parse(moment)) / 1_000);
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const WHOLE = new Intl.DateTimeFormat(undefined, {
  weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short",
});

/** The time of day. */
export function clock(moment) {
  return CLOCK.format(new Date(moment));
}

/** The day, in words. */
export function day(moment) {
  return DAY.format(new Date(moment));
}

/** Day, time and zone: what is read at another place and time must say which. */
export function whole(moment) {
  return WHOLE.format(new Date(moment));
}

/** An amount of bytes. */
export function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let left = Number(bytes);
  let unit = 0;
  for (; left >= 1_024 && unit < units.length - 1; unit++) left /= 1_024;
  return `${unit && left < 10 ? left.toFixed(1) : Math.round(left)} ${units[unit]}`;
}

/** So many of something. */
export function count(many, what) {
  return `${many} ${what}${many === 1 ? "" : "s"}`;
}
