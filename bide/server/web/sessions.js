// The list of sessions, each with its live word.
import { html, Once, Since, Text, Trouble, Word } from "./parts.js";
import * as state from "./state.js";

const WORDS = ["", "working", "waiting", "parked", "queued", "ended"];

export function Sessions() {
  const found = state.sessions.value;
  return html`
    <section class="sessions" aria-label="Sessions">
      <div class="filters" role="group" aria-label="Which sessions">
        ${WORDS.map((word) => html`<button class="chip" key=${word} aria-pressed=${state.filter.value === word} onClick=${() => state.show(word)}>${word || "all"}</button>`)}
      </div>
      <${Trouble} problem=${state.trouble.value} />
      ${found === undefined ? html`<p class="quiet">Reading…</p>` : html`<${Rows} found=${found} />`}
      ${state.rest.value && html`<${Once} class="plain" onClick=${state.more}>More<//>`}
    </section>`;
}

function Rows({ found }) {
  const word = state.filter.value;
  const rows = [...found.values()].filter((one) => !word || one.shown === word);
  if (rows.length === 0) {
    return html`<p class="quiet">${word ? `No session is ${word}.` : html`No sessions yet. <code>bide run REPO TASK</code> starts one.`}</p>`;
  }
  return html`<ul>${rows.map((one) => html`<${Row} key=${one.id} session=${one} />`)}</ul>`;
}

function Row({ session }) {
  const here = state.route.value === session.id;
  return html`
    <li>
      <a href=${`#/s/${session.id}`} class="session" aria-current=${here ? "page" : null}>
        <span class="title"><${Text} value=${session.title} /></span>
        <span class="state"><${Word} session=${session} /> <${Since} moment=${session.since} /></span>
        <span class="next"><${Text} value=${session.reason || session.next_step} /></span>
      </a>
    </li>`;
}
