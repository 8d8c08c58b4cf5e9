// What people say to a session: the box, how it is delivered, and what became of it.
import { useEffect, useState } from "preact/hooks";
import { ask } from "./api.js";
import * as drafts from "./drafts.js";
import * as inert from "./inert.js";
import { html, Once, sends, ticked, Trouble, useOnce } from "./parts.js";
import { words } from "./receipts.js";
import * as state from "./state.js";

const DELIVERIES = [
  ["next_turn", "next turn", "when the running turn has ended"],
  ["steer", "into the turn", "at the next step of the running turn"],
  ["interrupt", "instead of the turn", "the running turn is stopped first"],
];
const GOES_BACK = new Set(["user.message", "user.answer"]);
const DOES = { "user.interrupt": "interrupt", "user.park": "park", "user.resume": "resume", "user.cancel": "cancel", "user.answer": "answer", "user.extend": "extend" };

export function Steer({ session, log }) {
  const name = `message.${session.id}`;
  const [given, setGiven] = useState(() => drafts.draft(name) ?? { text: "", delivery: "next_turn" });
  const change = (to) => {
    const now = { ...given, ...to };
    setGiven(now);
    drafts.keep(name, now.text ? now : undefined);
  };
  const [submit, busy] = useOnce(async () => {
    const { text, delivery } = given;
    change({ text: "" }); // it is in the outbox from now on
    await drafts.send(session.id, { type: "user.message", text, delivery });
  });
  const empty = !given.text.trim();
  const onSubmit = (event) => {
    event.preventDefault();
    if (!empty) submit();
  };
  const onKey = (event) => {
    if (!sends(event)) return;
    event.preventDefault();
    event.currentTarget.form.requestSubmit();
  };
  const back = (text, delivery) => change({ text: [given.text, text].filter(Boolean).join("\n"), delivery: delivery ?? given.delivery });
  return html`
    <section class="steer" aria-label="Say something">
      <${Underway} session=${session} log=${log} back=${back} />
      <form onSubmit=${onSubmit}>
        <textarea aria-label="Message" rows="1" placeholder=${placeholder(session)} value=${given.text}
          onInput=${(event) => change({ text: event.currentTarget.value })} onKeyDown=${onKey}></textarea>
        <div class="buttons">
          <${Deliveries} session=${session} value=${given.delivery} choose=${(delivery) => change({ delivery })} />
          <button type="submit" class="main" disabled=${empty || busy}>Send</button>
        </div>
      </form>
    </section>`;
}

function placeholder({ shown }) {
  if (shown === "parked") return "A message wakes it";
  if (shown === "ended") return "A message goes on with it";
  return "Message";
}

function Deliveries({ session, value, choose }) {
  const can = state.runtimes.value.get(session.runtime);
  const late = value === "steer" && can && !can.steer;
  return html`
    <fieldset class="deliveries">
      <legend class="unseen">When it is delivered</legend>
      ${DELIVERIES.map(([name, label, says]) => html`
        <label key=${name} title=${says}>
          <input type="radio" name="delivery" value=${name} checked=${value === name} onChange=${() => choose(name)} /><span>${label}</span>
        </label>`)}
      ${late && html`<span class="hint" role="note">This runtime takes it with the next turn.</span>`}
    </fieldset>`;
}

/** What is on its way, to the server and from there to the runtime. */
function Underway({ session, log, back }) {
  const mine = drafts.outbox.value.filter((one) => one.session === session.id);
  const sent = mine.filter((one) => !log.receipt(one.id));
  const open = log.underway();
  useEffect(() => {
    for (const one of mine) if (log.receipt(one.id) && one.state !== "sending") drafts.drop(one.id); // the log says that it arrived
  });
  if (!sent.length && !open.length) return null;
  return html`
    <ul class="underway" aria-label="On its way" aria-live="polite">
      ${open.map((one) => html`<${Open} key=${one.id} session=${session} input=${one} back=${back} />`)}
      ${sent.map((one) => html`<${Sent} key=${one.id} item=${one} back=${back} />`)}
    </ul>`;
}

/** An input that the server has, and what can still be done about it. */
function Open({ session, input, back }) {
  const [problem, setProblem] = useState(null);
  const post = async (body) => {
    try {
      await ask("POST", `/v1/sessions/${session.id}/events`, { body: { events: [{ input_id: input.id, ...body }] } });
      setProblem(null);
      if (body.type === "user.withdraw" && input.text) back(input.text, input.delivery);
    } catch (said) {
      setProblem(said);
    }
  };
  const mayGoBack = input.status === "accepted" && GOES_BACK.has(input.type);
  return html`
    <li data-status=${input.status}>
      <${What} type=${input.type} text=${input.text} /> <span class="receipt">${inert.line(words(input))}</span>
      <span class="buttons">
        ${mayGoBack && html`<${Once} class="plain" onClick=${() => post({ type: "user.withdraw" })}>Take back<//>`}
        ${input.status === "unconfirmed" && html`
          <${Once} onClick=${() => post({ type: "user.resolve", choice: "again" })}>Deliver again<//>
          <${Once} onClick=${() => post({ type: "user.resolve", choice: "delivered" })}>It was delivered<//>`}
      </span>
      <${Trouble} problem=${problem} />
    </li>`;
}

function Sent({ item, back }) {
  const says = { sending: "sending…", unsure: "not known whether it arrived", refused: "refused" }[item.state];
  const { detail, hint } = item.problem ?? {};
  const take = () => {
    back(item.body.text, item.body.delivery);
    drafts.drop(item.id);
  };
  return html`
    <li data-status=${item.state}>
      <${What} type=${item.body.type} text=${item.body.text} /> <span class="receipt">${says}</span>
      ${detail && item.state === "refused" && html`<span class="hint">${ticked(inert.line(`${detail} ${hint}`))}</span>`}
      ${item.state !== "sending" && html`
        <span class="buttons">
          <${Once} onClick=${() => drafts.sendAgain(item)}>Send again<//>
          ${item.state === "refused" && (item.body.text ? html`<${Once} onClick=${take}>Back into the box<//>` : html`<${Once} onClick=${() => drafts.drop(item.id)}>Put away<//>`)}
        </span>`}
    </li>`;
}

function What({ type, text }) {
  const said = DOES[type];
  return html`${said && html`<span class="does">${said}</span> `}${text && html`<bdi class="what">${inert.line(text)}</bdi>`}`;
}
