// Small parts that several views are made of.
import { h } from "preact";
import { useRef, useState } from "preact/hooks";
import htm from "htm";
import * as inert from "./inert.js";
import { since, whole } from "./when.js";

export const html = htm.bind(h);

/** Text of strangers, isolated: it cannot reorder what stands around it. */
export function Text({ value }) {
  return html`<bdi>${inert.line(value)}</bdi>`;
}

/** The shown word of a session. */
export function Word({ session }) {
  return html`<span class="word" data-word=${session.shown}>${session.shown}</span>`;
}

/** How long ago; the moment itself when pointed at. */
export function Since({ moment }) {
  return html`<time dateTime=${moment} title=${whole(moment)}>${since(moment)}</time>`;
}

/** A long text, of which the beginning is shown until more is wanted. `key`: what remembers that it was unfolded. */
export function Fold({ text, fold, open, onOpen }) {
  const { shown, lines } = beginning(text, fold);
  if (open || shown.length === text.length) return html`<div class="text" dir="auto">${text}</div>`;
  return html`
    <div class="text" dir="auto">${shown}…</div>
    <button class="plain unfold" onClick=${onOpen}>show all${lines > 1 ? `, ${lines} lines` : ""}</button>`;
}

function beginning(text, { lines, chars }) {
  let end = 0;
  let found = 0;
  for (let i = -1; found < lines; found++) {
    i = text.indexOf("\n", i + 1);
    end = i < 0 ? text.length : i;
    if (i < 0) break;
  }
  end = Math.min(end, chars);
  if (end < text.length && text.charCodeAt(end) >= 0xdc00 && text.charCodeAt(end) <= 0xdfff) end -= 1; // no half of a character
  return { shown: text.slice(0, end), lines: end < text.length ? text.split("\n").length : found };
}

/** A "no" or an open end, for a person; nothing where there is none. */
export function Trouble({ problem, children }) {
  if (!problem) return null;
  return html`<div class="trouble" role="alert"><p>${inert.line(problem.detail ?? problem.message)} ${problem.hint && html`<span class="hint">${ticked(inert.line(problem.hint))}</span>`}</p>${children}</div>`;
}

/** A sentence in which `commands` stand out. */
export function ticked(sentence) {
  return sentence.split("`").map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));
}

/** Does one thing at a time, however often it is asked to. Gives the way to ask, and whether it is at it. */
export function useOnce(work) {
  const [busy, setBusy] = useState(false);
  const at = useRef(false); // before anything is drawn anew
  const ask = async () => {
    if (at.current) return;
    at.current = true;
    setBusy(true);
    try {
      await work();
    } finally {
      at.current = false;
      setBusy(false);
    }
  };
  return [ask, busy];
}

/** A button that does one thing at a time. */
export function Once({ onClick, disabled, children, ...more }) {
  const [press, busy] = useOnce(onClick);
  return html`<button type="button" ...${more} disabled=${busy || disabled} onClick=${press}>${children}</button>`;
}

/** Whether this key press sends: Enter alone, and not the one that ends the composing of a character. */
export function sends(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229;
}
