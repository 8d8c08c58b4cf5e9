// Questions that wait for a human, and the form that answers one.
import { useState } from "preact/hooks";
import { ask } from "./api.js";
import { NOTICE_MS, SAID_CHARS, SAID_LINES } from "./bounds.js";
import * as drafts from "./drafts.js";
import * as inert from "./inert.js";
import { Fold, html, Once, sends, Since, Text, Trouble, useOnce } from "./parts.js";
import * as state from "./state.js";
import { whole } from "./when.js";

export function Inbox() {
  const found = state.questions.value;
  return html`
    <section class="inbox" aria-label="Inbox">
      <h1 tabindex="-1">Inbox</h1>
      ${found === undefined && html`<p class="quiet">Reading…</p>`}
      ${found?.length === 0 && html`<p class="quiet">Nobody waits for you.</p>`}
      <${Questions} found=${found ?? []} titled />
    </section>`;
}

/** Questions with their forms; those that were just answered, or closed by others, stay until they are put away. */
export function Questions({ found, titled }) {
  const [held, setHeld] = useState(new Map()); // by id, questions that somebody here is not done with
  const hold = (question, kept) => {
    setHeld((before) => {
      const now = new Map(before);
      if (kept) now.set(question.id, question);
      else now.delete(question.id);
      return now;
    });
  };
  const shown = new Map([...held, ...found.map((one) => [one.id, one])]);
  return html`${[...shown.values()].map((one) => html`<${Question} key=${one.id} question=${one} titled=${titled} hold=${hold} />`)}`;
}

function Question({ question, titled, hold }) {
  const [unfolded, unfold] = useState(false);
  const fold = { lines: SAID_LINES, chars: SAID_CHARS };
  const title = state.sessions.value?.get(question.session_id)?.title;
  return html`
    <article class="question" data-id=${question.id} aria-label="Question">
      <header>
        ${question.blocking ? html`<span class="tag">it waits for this</span>` : html`<span class="tag soft">it goes on meanwhile</span>`}
        ${question.impact && html`<span class="tag soft">${question.impact} impact</span>`}
        ${question.asked_at && html`<span class="quiet">asked <${Since} moment=${question.asked_at} /> ago</span>`}
      </header>
      ${titled && html`<p class="of"><a href=${`#/s/${question.session_id}`}>${title ? html`<${Text} value=${title} />` : "its session"}</a></p>`}
      <h2 class="text" dir="auto">${inert.text(question.question)}</h2>
      ${question.context && html`<div class="context"><${Fold} text=${inert.text(question.context)} fold=${fold} open=${unfolded} onOpen=${() => unfold(true)} /></div>`}
      <${Form} question=${question} hold=${hold} />
    </article>`;
}

/** What is typed is a draft until it is answered for; it holds the id too, so that sending twice answers once. */
function Form({ question, hold }) {
  const name = `question.${question.id}`;
  const [given, setGiven] = useState(() => drafts.draft(name) ?? { text: "", choices: [] });
  const [problem, setProblem] = useState(null);
  const [done, setDone] = useState("");
  const change = (to) => {
    const now = { ...given, ...to, id: undefined }; // another answer is another input
    setGiven(now);
    hold(question, now.text !== "" || now.choices.length > 0);
    drafts.keep(name, now.text || now.choices.length ? now : undefined);
  };
  const settle = (sentence) => {
    drafts.keep(name, undefined);
    setProblem(null);
    setDone(sentence);
    setTimeout(() => hold(question, false), NOTICE_MS);
    state.reread();
  };
  const post = async (decline) => {
    const id = given.id ?? drafts.newId();
    hold(question, true);
    if (!decline) drafts.keep(name, { ...given, id });
    setGiven({ ...given, id });
    const body = { type: "user.answer", id, question_id: question.id, text: decline ? "" : given.text, choices: decline ? [] : given.choices, decline };
    try {
      await ask("POST", `/v1/sessions/${question.session_id}/events`, { body: { events: [body] } });
      settle(decline ? "Declined." : "Answered.");
    } catch (said) {
      setProblem(said);
    }
  };
  const asMessage = async () => {
    const text = [...given.choices, given.text].filter(Boolean).join("\n");
    const taken = await drafts.send(question.session_id, { type: "user.message", text, delivery: "next_turn" });
    settle(taken ? "Sent as a message." : "It could not be sent yet, and waits at its session.");
  };
  const putAway = () => {
    drafts.keep(name, undefined);
    hold(question, false);
    state.reread();
  };
  if (done) return html`<p class="done" role="status">${done}</p>`;
  const closed = problem && ["already_answered", "question_closed", "no_question"].includes(problem.code);
  const empty = !given.text.trim() && given.choices.length === 0;
  const [submit, busy] = useOnce(() => post(false));
  const onSubmit = (event) => {
    event.preventDefault();
    if (!empty && !closed) submit();
  };
  const onKey = (event) => {
    if (!sends(event)) return;
    event.preventDefault();
    event.currentTarget.form.requestSubmit();
  };
  return html`
    <form onSubmit=${onSubmit}>
      <${Options} question=${question} given=${given} change=${change} disabled=${closed} />
      <textarea aria-label="Your answer" rows="2" placeholder=${question.options.length ? "or in your own words" : "Your answer"}
        value=${given.text} readonly=${closed} onInput=${(event) => change({ text: event.currentTarget.value })} onKeyDown=${onKey}></textarea>
      <${Trouble} problem=${problem}>${closed && html`<${Winner} answer=${problem.said.answer} />`}<//>
      <div class="buttons">
        ${closed
          ? html`<${Once} class="main" disabled=${empty} onClick=${asMessage}>Send as a message<//><${Once} onClick=${putAway}>Put away<//>`
          : html`<button type="submit" class="main" disabled=${empty || busy}>${problem?.unsure ? "Send again" : "Answer"}</button>
              <${Once} class="plain" onClick=${() => post(true)}>Decline<//>`}
      </div>
    </form>`;
}

function Options({ question, given, change, disabled }) {
  if (!question.options.length) return null;
  const toggle = (option) => {
    const choices = given.choices.includes(option) ? given.choices.filter((one) => one !== option) : [...given.choices, option];
    change({ choices });
  };
  return html`
    <fieldset class="options" disabled=${disabled}>
      <legend class="unseen">Options</legend>
      ${question.options.map((option) => html`
        <label class="option" key=${option}>
          <input type="checkbox" checked=${given.choices.includes(option)} onChange=${() => toggle(option)} />
          <span class="text" dir="auto">${inert.text(option)}</span>
        </label>`)}
    </fieldset>`;
}

/** The answer that was first. */
function Winner({ answer }) {
  if (!answer) return null;
  const said = [...answer.choices, answer.text].filter(Boolean).join("; ");
  return html`
    <p>Answered by <${Text} value=${answer.by} />${answer.via && html` from the <${Text} value=${answer.via} />`}${answer.at && ` at ${whole(answer.at)}`}:</p>
    <blockquote class="text" dir="auto">${inert.text(said) || "declined"}</blockquote>`;
}
