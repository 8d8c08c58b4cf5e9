// The one way to the server: questions with both halves of the sign-in, answers or problems.
import { signal } from "@preact/signals";
import { ANSWER_MS } from "./bounds.js";
import { hear } from "./when.js";

const KEY = "bide.page";

/** As whom the page is signed in; null: not at all; undefined: not known yet. */
export const reader = signal(undefined);
/** Why it is not, as a problem; null where it never was. */
export const turnedAway = signal(null);

/** A "no" of the server: `code`, `detail`, `hint`, and whatever else it says. */
export class Problem extends Error {
  constructor(said, status) {
    super(said.detail ?? `The server answered ${status}.`);
    this.said = said;
    this.code = said.code ?? "";
    this.detail = this.message;
    this.hint = said.hint ?? "";
    /** Whether the request may have been done all the same. */
    this.unsure = status >= 500;
  }
}

/** No answer came: nobody knows whether the request arrived. */
export class Lost extends Error {
  constructor() {
    super("No answer came; it is not known whether it arrived.");
    this.code = "lost";
    this.detail = this.message;
    this.hint = "";
    this.unsure = true;
  }
}

/** The half of the sign-in that only this page has; the other one is a cookie that it cannot see. */
export function half() {
  return { "X-Bide-Page": localStorage.getItem(KEY) ?? "" };
}

/** Asks the server. Raises `Problem` or `Lost`. */
export async function ask(method, path, { body } = {}) {
  const headers = half();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer, said;
  try {
    answer = await fetch(path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", redirect: "error", signal: AbortSignal.timeout(ANSWER_MS),
    });
    said = answer.status === 204 ? null : await answer.json();
  } catch {
    throw new Lost();
  }
  hear(answer);
  if (answer.ok) return said;
  const problem = new Problem(said, answer.status);
  if (answer.status === 401) turnAway(problem);
  throw problem;
}

/** The page is signed in no more. What was typed stays in the browser. */
export function turnAway(problem) {
  reader.value = null;
  turnedAway.value = problem;
}

/** Signs in with the code that stands in the address, if there is one; it is taken out of there before anything else. */
export async function signIn() {
  const found = /^#sign-in=(.*)$/.exec(location.hash);
  if (found) {
    history.replaceState(null, "", "/#/");
    try {
      const { key, ...who } = await ask("POST", "/v1/sign-in", { body: { code: found[1] } });
      localStorage.setItem(KEY, key);
      reader.value = who;
      return;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      turnAway(problem); // unless it is signed in from before
    }
  }
  if (localStorage.getItem(KEY) === null) {
    reader.value = null;
    return;
  }
  reader.value = await ask("GET", "/v1/sign-in");
  turnedAway.value = null;
}

export async function signOut() {
  await ask("DELETE", "/v1/sign-in");
  localStorage.removeItem(KEY);
  reader.value = null;
  turnedAway.value = null;
}

/** Saves an answer as a file of this machine. Its content is text to whoever opens it, whatever it holds. */
export async function file(path, name) {
  const answer = await fetch(path, { headers: half(), cache: "no-store", redirect: "error" }).catch(() => {
    throw new Lost();
  });
  if (!answer.ok) throw new Problem(await answer.json(), answer.status);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([await answer.blob()], { type: "text/plain" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Every item of a list, page by page. */
export async function all(path) {
  const found = [];
  for (let cursor = ""; cursor !== null; ) {
    const page = await ask("GET", cursor ? `${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}` : path);
    found.push(...page.items);
    cursor = page.next;
  }
  return found;
}
