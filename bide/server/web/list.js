// A list of which only what is seen is drawn, of rows whose heights nobody knows before they are drawn.
//
// What is seen hangs on an anchor, the first row in sight: rows that turn out taller or shorter, above or below, move
// everything but that. At its end the list stays at its end.
import { h, Component, createRef } from "preact";
import htm from "htm";
import { BOTTOM_PX, OVERSCAN_PX, ROW_PX, SETTLES_MAX } from "./bounds.js";
import { count as counted } from "./when.js";

const html = htm.bind(h);

/** Where rows are: heights as far as they are known, and their sums as far as they hold. Rows count from 0. */
export class Places {
  #heights = [];
  #tops = [0];

  height(i) {
    return this.#heights[i] ?? ROW_PX;
  }

  /** Whether the height is another one than was thought. */
  set(i, px) {
    const known = this.#heights[i];
    this.#heights[i] = px;
    if (Math.abs((known ?? ROW_PX) - px) < 0.01) return known === undefined;
    this.#tops.length = Math.min(this.#tops.length, i + 1);
    return true;
  }

  top(i) {
    for (let k = this.#tops.length; k <= i; k++) this.#tops[k] = this.#tops[k - 1] + this.height(k - 1);
    return this.#tops[i];
  }

  /** The last row that begins at or above this place. */
  find(y, count) {
    let low = 0;
    for (let high = count - 1; low < high; ) {
      const middle = (low + high + 1) >> 1;
      if (this.top(middle) <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Nothing is known any more: the list has another width. */
  forget() {
    this.#heights = [];
    this.#tops = [0];
  }
}

/** `count` rows. `kind(i)`: "row", "hidden" or "unknown"; `row(i)` draws one; `need(from, to)` says what is drawn. */
export class List extends Component {
  #box = createRef();
  #inner = createRef();
  #places = new Places();
  #anchor = { i: 0, down: 0 };
  #at = 0; // where it is scrolled to, as far as it was told
  #stuck = true;
  #seen = 0; // rows that there were when the end was last in sight
  #width = 0;
  #settles = 0;
  #drawn = [];
  #watched = new Set();
  #watch = null;

  componentDidMount() {
    this.#width = this.#box.current.clientWidth;
    this.#watch = new ResizeObserver(() => this.#resized());
    this.#watch.observe(this.#box.current);
    this.#settle();
  }

  componentDidUpdate() {
    this.#settle();
  }

  componentWillUnmount() {
    this.#watch.disconnect();
  }

  toEnd = () => {
    this.#stuck = true;
    this.forceUpdate();
  };

  #scrolled = () => {
    this.#look(this.#box.current);
    this.forceUpdate();
  };

  /** Takes over where a person has scrolled to. That is told later than it happens: whoever moves anything looks first. */
  #look(box) {
    const top = box.scrollTop;
    if (top === this.#at) return;
    this.#at = top;
    this.#stuck = top + box.clientHeight >= box.scrollHeight - BOTTOM_PX;
    const i = this.#places.find(top, this.props.count);
    this.#anchor = { i, down: top - this.#places.top(i) };
  }

  #resized() {
    const box = this.#box.current;
    if (!box || box.clientHeight === 0) return;
    this.#look(box);
    if (box.clientWidth !== this.#width) {
      this.#width = box.clientWidth;
      this.#places.forget();
    }
    this.#settle();
  }

  /** The rows to draw: what is in sight from the anchor on, and a little more on both sides. */
  #range() {
    const { count } = this.props;
    const height = this.#box.current?.clientHeight || innerHeight;
    const start = this.#stuck ? count - 1 : Math.min(this.#anchor.i, count - 1);
    const above = this.#stuck ? height + OVERSCAN_PX : OVERSCAN_PX;
    const below = this.#stuck ? 0 : this.#anchor.down + height + OVERSCAN_PX;
    const rows = [];
    for (let i = start - (this.#stuck ? 0 : 1), y = 0; i >= 0 && y < above; i--) y += this.#take(i, rows);
    rows.reverse();
    for (let i = this.#stuck ? count : start, y = 0; i < count && y < below; i++) y += this.#take(i, rows);
    return rows;
  }

  #take(i, rows) {
    if (this.props.kind(i) === "hidden") this.#places.set(i, 0);
    else rows.push(i);
    return this.#places.height(i);
  }

  /** Measures what was drawn, puts it where it belongs, and keeps in place what is in sight. */
  #settle() {
    const box = this.#box.current;
    if (!box || box.clientHeight === 0) return;
    this.#look(box);
    let moved = false;
    for (const element of this.#inner.current.children) {
      if (!this.#watched.has(element)) {
        this.#watched.add(element);
        this.#watch.observe(element);
      }
      if (element.dataset.kind === "row") moved = this.#places.set(element.dataset.seq - 1, element.getBoundingClientRect().height) || moved;
    }
    this.#place(box);
    for (const element of this.#watched) {
      if (element.isConnected) continue;
      this.#watched.delete(element);
      this.#watch.unobserve(element);
    }
    if (this.#stuck) this.#seen = this.props.count;
    if (this.#drawn.length) this.props.need(this.#drawn[0] + 1, this.#drawn.at(-1) + 1);
    if (moved && this.#settles++ < SETTLES_MAX) this.forceUpdate();
    else this.#settles = 0;
  }

  #place(box) {
    const { count } = this.props;
    const total = this.#places.top(count);
    for (const element of this.#inner.current.children) {
      const top = `${this.#places.top(element.dataset.seq - 1)}px`;
      if (element.style.top !== top) element.style.top = top;
    }
    const height = `${total}px`;
    if (this.#inner.current.style.height !== height) this.#inner.current.style.height = height;
    const wanted = this.#stuck ? Math.max(0, box.scrollHeight - box.clientHeight) : this.#places.top(Math.min(this.#anchor.i, count)) + this.#anchor.down;
    if (Math.abs(box.scrollTop - wanted) >= 1) box.scrollTop = wanted;
    this.#at = box.scrollTop;
  }

  render({ count, kind, row, label }) {
    this.#drawn = count ? this.#range() : [];
    const more = count - this.#seen;
    return html`
      <div class="list">
        <div class="scroll" ref=${this.#box} onScroll=${this.#scrolled} tabindex="0" role="log" aria-live="off" aria-label=${label}>
          <div class="rows" ref=${this.#inner}>
            ${this.#drawn.map((i) => html`<div class="row" key=${i + 1} data-seq=${i + 1} data-kind=${kind(i)}>${kind(i) === "row" && row(i)}</div>`)}
          </div>
        </div>
        ${!this.#stuck && html`<button class="newest" onClick=${this.toEnd}>${more > 0 ? `${counted(more, "new event")} ↓` : "Newest ↓"}</button>`}
      </div>`;
  }
}
