// One session: what it is at, what it said and did, what it asks, and what people can do about it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { file } from "./api.js";
import * as drafts from "./drafts.js";
import * as inert from "./inert.js";
import { Questions } from "./inbox.js";
import { List } from "./list.js";
import { Log } from "./log.js";
import { Fold, html, Once, Since, Text, ticked, Trouble, Word } from "./parts.js";
import { words } from "./receipts.js";
import * as state from "./state.js";
import { Steer } from "./steer.js";
import { follow } from "./stream.js";
import { silent, told } from "./told.js";
import { clock, day, size, whole } from "./when.js";

export function Session({ id }) {
  const [trouble, setTrouble] = useState(null);
  const [tries, again] = useState(0);
  const [log, setLog] = useState(null);
  useEffect(() => {
    let mine = true;
    const fresh = new Log(id);
    const gone = (problem) => (problem.code === "no_session" ? setTrouble(problem) : again((n) => n + 1)); // the log was set back
    const begin = async () => {
      const found = await state.look(id);
      if (!found) throw new Error("It was deleted, or never there.");
      await fresh.open(found.last_seq);
      if (!mine) return;
      setLog(fresh);
      setTrouble(null);
      follow({ id, cursor: () => fresh.last, take: (events) => fresh.put(events), glimpse: (one) => fresh.glimpsed(one), gone });
    };
    begin().catch((problem) => mine && setTrouble({ detail: problem.message, hint: problem.hint ?? "" }));
    return () => {
      mine = false;
      follow(null);
    };
  }, [id, tries]);
  const found = state.sessions.value?.get(id);
  return html`
    <${Trouble} problem=${trouble}><div class="buttons"><${Once} onClick=${() => again((n) => n + 1)}>Try again<//></div><//>
    ${found && log ? html`<${Opened} session=${found} log=${log} />` : !trouble && html`<p class="quiet">Reading…</p>`}`;
}

function Opened({ session, log }) {
  const asked = (state.questions.value ?? []).filter((one) => one.session_id === session.id);
  return html`
    <article class="opened">
      <${Head} session=${session} />
      <${Timeline} log=${log} />
      <${Now} log=${log} />
      <div class="foot">
        <${Questions} found=${asked} />
        <${Steer} session=${session} log=${log} />
      </div>
    </article>`;
}

/** What is being said at this moment, until it is an event. */
function Now({ log }) {
  const { kind, text } = log.glimpse.value ?? {};
  if (!text) return html`<div></div>`;
  return html`<div class="now" data-kind=${kind}><div class="text" dir="auto">${inert.text(text)}</div></div>`;
}

function Head({ session }) {
  const { workspace, cost, checkpoint } = session;
  const place = [workspace?.branch, workspace?.head?.slice(0, 8)].filter(Boolean).join(" @ ");
  return html`
    <header class="head">
      <a class="back" href="#/">← all</a>
      <h1 tabindex="-1"><${Text} value=${session.title} /></h1>
      <p class="state">
        <${Word} session=${session} /> <span class="quiet">for <${Since} moment=${session.since} /></span>
        ${session.must_act !== "nobody" && html`<span class="act" data-who=${session.must_act}>${who(session.must_act)}</span>`}
        <span class="next">${ticked(inert.line(session.reason ? `${session.reason}. ${session.next_step}` : session.next_step))}</span>
      </p>
      <details>
        <summary>Details</summary>
        <dl>
          <dt>project</dt><dd><${Text} value=${session.project} /></dd>
          ${workspace?.repository && html`<dt>repository</dt><dd><${Text} value=${workspace.repository} /> <${Text} value=${place} /></dd>`}
          <dt>runtime</dt><dd><${Text} value=${[session.runtime, session.model].filter(Boolean).join(", ")} />, turn ${session.turn.n}</dd>
          <dt>runner</dt><dd><${Text} value=${session.runner_name ?? "none"} /></dd>
          <dt>saved</dt><dd>${checkpoint ? `checkpoint ${checkpoint.n}${checkpoint.saved_at ? `, ${whole(checkpoint.saved_at)}` : ""}` : "not yet"}</dd>
          <dt>spent</dt><dd>${session.cost.usd.toFixed(2)} USD, ${cost.tokens} tokens</dd>
          ${session.expires_at && html`<dt>kept until</dt><dd>${whole(session.expires_at)}</dd>`}
          <dt>id</dt><dd><code>${session.id}</code></dd>
        </dl>
      </details>
      <${Controls} session=${session} />
    </header>`;
}

function who(name) {
  return name === "human" ? "you" : name;
}

function Controls({ session }) {
  const asking = useRef(null);
  const { shown } = session;
  const does = (type) => () => drafts.send(session.id, { type });
  const cancel = () => {
    asking.current.close();
    return does("user.cancel")();
  };
  const held = ["starting", "working", "waiting", "resuming"].includes(shown);
  return html`
    <div class="controls buttons" role="group" aria-label="What to do with it">
      ${shown === "working" && html`<${Once} onClick=${does("user.interrupt")}>Interrupt<//>`}
      ${held && html`<${Once} onClick=${does("user.park")}>Park<//>`}
      ${shown === "parked" && html`<${Once} onClick=${does("user.resume")}>Resume<//>`}
      ${shown !== "ended" && html`<${Once} class="danger" onClick=${() => asking.current.showModal()}>Cancel…<//>`}
      <dialog ref=${asking} aria-labelledby="cancel-it">
        <h2 id="cancel-it">Cancel this session?</h2>
        <p>It stops, its work is saved, and it ends. A message can go on with it while its checkpoint is kept.</p>
        <div class="buttons">
          <${Once} class="main danger" onClick=${cancel}>Cancel it<//>
          <${Once} onClick=${() => asking.current.close()}>Leave it<//>
        </div>
      </dialog>
    </div>`;
}

function Timeline({ log }) {
  const [, redraw] = useState(0);
  const kind = (i) => {
    const event = log.at(i + 1);
    return event ? (silent(event) ? "hidden" : "row") : "unknown";
  };
  const row = useMemo(() => {
    const open = (seq) => {
      log.unfolded.add(seq);
      redraw((n) => n + 1);
    };
    return (i) => html`<${Row} log=${log} event=${log.at(i + 1)} before=${log.at(i)} open=${open} />`;
  }, [log]);
  return html`<${List} count=${log.last} kind=${kind} row=${row} need=${(from, to) => log.need(from, to)} label="Timeline" />`;
}

/** The whole of what was cut, as a file: it is never opened here. */
function Whole({ event }) {
  const [problem, setProblem] = useState(null);
  const save = () => file(`/v1/sessions/${event.session_id}/outputs/${encodeURIComponent(event.data.blob)}`, `output-${event.seq}.txt`).then(() => setProblem(null), setProblem);
  return html`<${Once} class="plain unfold" onClick=${save}>save all ${size(event.data.bytes)}<//><${Trouble} problem=${problem} />`;
}

function Row({ log, event, before, open }) {
  const { tone, label, text, more, fold } = told(event);
  const today = day(event.time);
  const receipt = event.type.startsWith("user.") && log.receipt(event.data.id);
  return html`
    ${(!before || day(before.time) !== today) && html`<p class="day">${today}</p>`}
    <div class=${`event ${tone}`} data-type=${event.type}>
      <time dateTime=${event.time} title=${whole(event.time)}>${clock(event.time)}</time>
      <div class="said">
        ${label && html`<span class="label">${label}</span>`}
        <${Fold} text=${text} fold=${fold} open=${log.unfolded.has(event.seq)} onOpen=${() => open(event.seq)} />
        ${more.map((one) => html`<p class="more"><bdi>${one}</bdi></p>`)}
        ${event.data.blob && html`<${Whole} event=${event} />`}
        ${receipt && html`<p class="more receipt" data-status=${receipt.status}>${inert.line(words(receipt))}</p>`}
      </div>
    </div>`;
}
