// One session's log in this tab, by seq: a seq that comes twice is one, and what is not there is known to be missing.
import { signal } from "@preact/signals";
import { ask } from "./api.js";
import { AGAIN_MS, GLIMPSE_CHARS, HELD_EVENTS, PAGE_EVENTS } from "./bounds.js";
import { Receipts } from "./receipts.js";

const SETTLES = /^(assistant|tool|turn)\./;

export class Log {
  /** Rises, once a frame, when anything of it has changed. Whoever reads the log while drawing is drawn anew then. */
  version = signal(0);
  /** What the runtime is saying at this moment: `{kind, text}`; void with its next event. */
  glimpse = signal(null);
  /** What a person unfolded stays so when it is scrolled away. */
  unfolded = new Set();

  #last = 0;
  #receipts = new Receipts();
  #events = new Map();
  #asked = new Set(); // first seqs of pages under way
  #again = new Map(); // first seq of a page that could not be had -> when to ask again
  #drawing = false;
  #middle = 0;

  constructor(id) {
    this.id = id;
  }

  /** Begins with the newest page, of a session whose newest event is `last`. */
  async open(last) {
    const [events, inputs] = await Promise.all([this.#read(Math.max(0, last - PAGE_EVENTS), last), this.#inputs()]);
    this.#receipts.begin(inputs, last);
    this.#last = Math.max(this.#last, last);
    this.put(events);
    this.#changed();
  }

  /** seq of the newest event. */
  get last() {
    this.#subscribe();
    return this.#last;
  }

  at(seq) {
    this.#subscribe();
    return this.#events.get(seq);
  }

  receipt(id) {
    this.#subscribe();
    return this.#receipts.of(id);
  }

  /** Receipts of what is still on its way, the oldest first. */
  underway() {
    this.#subscribe();
    return this.#receipts.open();
  }

  /** Takes events, in whatever order and however often they come. */
  put(events) {
    for (const event of events) {
      if (this.#events.has(event.seq)) continue;
      this.#events.set(event.seq, event);
      this.#last = Math.max(this.#last, event.seq);
      this.#receipts.hear(event);
      if (this.glimpse.value && SETTLES.test(event.type)) this.glimpse.value = null;
    }
    if (this.#events.size > HELD_EVENTS) this.#letGo();
    this.#changed();
  }

  /** Takes what the runtime is about to say. */
  glimpsed({ kind, text }) {
    const before = this.glimpse.value?.kind === kind ? this.glimpse.value.text : "";
    this.glimpse.value = { kind, text: (before + text).slice(-GLIMPSE_CHARS) };
  }

  /** These seqs are looked at: they come if they are not there, and are the last to be let go. */
  need(from, to) {
    this.#middle = (from + to) / 2;
    for (let first = from - ((from - 1) % PAGE_EVENTS); first <= to; first += PAGE_EVENTS) {
      if (this.#lacks(Math.max(first, from), Math.min(first + PAGE_EVENTS - 1, to, this.#last))) this.#fetch(first);
    }
  }

  #subscribe() {
    return this.version.value;
  }

  #lacks(from, to) {
    for (let seq = from; seq <= to; seq++) if (!this.#events.has(seq)) return true;
    return false;
  }

  async #fetch(first) {
    if (this.#asked.has(first) || Date.now() < (this.#again.get(first) ?? 0)) return;
    this.#asked.add(first);
    try {
      const to = Math.min(first + PAGE_EVENTS - 1, this.#last);
      this.put(await this.#read(first - 1, to));
      if (this.#lacks(first, to)) throw new Error("it is not all there");
      this.#again.delete(first);
    } catch {
      this.#again.set(first, Date.now() + AGAIN_MS);
      setTimeout(() => this.#changed(), AGAIN_MS);
    } finally {
      this.#asked.delete(first);
    }
  }

  /** Events after one seq, up to and with another. An answer may hold fewer than were asked for. */
  async #read(after, to) {
    const found = [];
    while (after < to) {
      const page = await ask("GET", `/v1/sessions/${this.id}/events?after=${after}&limit=${to - after}`);
      found.push(...page.items);
      if (page.items.length === 0 || page.next === null) break;
      after = page.items.at(-1).seq;
    }
    return found;
  }

  async #inputs() {
    return (await ask("GET", `/v1/sessions/${this.id}/inputs`)).items;
  }

  #letGo() {
    const far = [...this.#events.keys()].sort((a, b) => Math.abs(b - this.#middle) - Math.abs(a - this.#middle));
    for (const seq of far.slice(0, HELD_EVENTS / 4)) this.#events.delete(seq);
  }

  #changed() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.version.value++;
    });
  }
}
