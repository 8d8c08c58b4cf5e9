// The page: signs in, keeps up with the server, and shows the inbox, the sessions, and one of them.
import { Component, render } from "preact";
import { useEffect } from "preact/hooks";
import * as api from "./api.js";
import { Inbox } from "./inbox.js";
import * as inert from "./inert.js";
import { html, Once, ticked, Trouble } from "./parts.js";
import { Session } from "./session.js";
import { Sessions } from "./sessions.js";
import * as state from "./state.js";
import * as stream from "./stream.js";
import { clock } from "./when.js";

function App() {
  const reader = api.reader.value;
  if (reader === undefined) return html`<p class="blank">Reading…</p>`;
  return reader === null ? html`<${SignedOut} />` : html`<${SignedIn} />`;
}

function SignedOut() {
  const problem = api.turnedAway.value;
  return html`
    <main class="blank">
      <h1>bide</h1>
      ${problem?.code === "link_used" && html`<p role="alert">${inert.line(problem.detail)}</p>`}
      <p>This browser is not signed in. ${ticked("`bide open` prints a link that signs it in, once.")}</p>
      ${problem?.code === "unauthenticated" && html`<p class="quiet">What you had typed is kept here.</p>`}
    </main>`;
}

function SignedIn() {
  const id = state.route.value;
  useEffect(() => {
    state.reread();
  }, []);
  const name = title(id);
  useEffect(() => {
    document.title = name;
  }, [name]);
  return html`
    <header class="bar">
      <a class="brand" href="#/">bide</a>
      <${Line} />
      <${Waiting} />
      <${Once} class="plain" onClick=${api.signOut}>Sign out<//>
    </header>
    <div class="panes" data-at=${id ? "session" : "home"}>
      <main class="stage">${id ? html`<${Session} key=${id} id=${id} />` : html`<${Inbox} />`}</main>
      <nav class="side" aria-label="Sessions"><${Sessions} /></nav>
    </div>`;
}

function title(id) {
  const waiting = state.questions.value?.length ?? 0;
  const name = id && state.sessions.value?.get(id)?.title;
  return `${waiting ? `(${waiting}) ` : ""}${name ? `${inert.line(name)} · ` : ""}bide`;
}

/** How the line to the server is. */
function Line() {
  const { state: how, since } = stream.line.value;
  const says = { opening: "connecting…", open: "live", broken: `no connection since ${clock(since)}`, resting: "resting" }[how];
  return html`<span class="line" data-line=${how} role="status">${says}</span>`;
}

/** The way to the inbox, with how many questions wait there. */
function Waiting() {
  const waiting = state.questions.value?.length ?? 0;
  return html`<a class="waiting" href="#/" data-some=${waiting > 0}>Inbox${waiting > 0 && html` <b>${waiting}</b>`}</a>`;
}

/** A mistake of ours is said, and the rest of the browser's tab lives. */
class Whole extends Component {
  state = { problem: null };

  componentDidCatch(error) {
    console.error(error);
    this.setState({ problem: { detail: `The page has made a mistake: ${error?.message}.`, hint: "Load it anew; nothing typed is lost." } });
  }

  render({ children }, { problem }) {
    return problem ? html`<main class="blank"><${Trouble} problem=${problem} /></main>` : children;
  }
}

async function begin() {
  try {
    await api.signIn();
  } catch (problem) {
    if (problem.code !== "unauthenticated") {
      api.reader.value = {}; // nobody knows yet; the lists say what is wrong, and try again
    }
  }
  state.navigate();
  addEventListener("hashchange", () => {
    if (location.hash.startsWith("#sign-in=")) location.reload();
    state.navigate();
  });
  state.keepUp();
  stream.live();
}

const page = document.getElementById("page");
page.replaceChildren();
render(html`<${Whole}><${App} /><//>`, page);
begin();
