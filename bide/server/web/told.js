// Events in words: who or what, what happened, and how it should look. Unknown types show what they hold; nothing throws.
import { INPUT_CHARS, SAID_CHARS, SAID_LINES, SHOWN_CHARS, SHOWN_LINES } from "./bounds.js";
import * as inert from "./inert.js";
import { count, size, span, whole } from "./when.js";

const SAID = { lines: SAID_LINES, chars: SAID_CHARS };
const OUTPUT = { lines: SHOWN_LINES, chars: SHOWN_CHARS };

/** What stands in a row: `{tone, label, text, more, fold}`; `more` is said below the text, in small. */
export function told(event) {
  let found = KNOWN.get(event);
  if (!found) {
    found = clean(tell(event), event);
    KNOWN.set(event, found);
  }
  return found;
}

/** Whether the event says nothing that those around it do not say. */
export function silent(event) {
  return event.type === "user.receipt" && ARRIVED.has(event.data.status); // that stands under the input itself
}

const KNOWN = new WeakMap();
const ARRIVED = new Set(["accepted", "delivered", "consumed"]);

function tell(event) {
  try {
    const way = TOLD.get(event.type);
    if (way) return way(event.data, event);
  } catch {
    // a newer server may say it otherwise
  }
  return { tone: "state", label: event.type, text: JSON.stringify(event.data), fold: OUTPUT };
}

function clean({ tone, label, text, more = [], fold = SAID }, event) {
  const who = event.type.startsWith("user.") && event.type !== "user.receipt" && event.actor ? event.actor : label;
  return { tone, label: inert.line(who), text: inert.text(text).trimEnd(), more: more.filter(Boolean).map(inert.line), fold };
}

const state = (label, text, more) => ({ tone: "state", label, text, more });
const work = (label, text, more) => ({ tone: "work", label, text, more });
const human = (text, more) => ({ tone: "human", label: "", text, more });
const loss = (text, more) => ({ tone: "trouble", label: "loss", text, more });

const kept = (body) => (body.expires_at ? `kept until ${whole(body.expires_at)}` : "");
const short = (id) => String(id).slice(0, 8);

function lost(item) {
  const what = `${item.what ?? ""}${item.bytes ? ` (${size(item.bytes)})` : ""}${item.reason ? `: ${item.reason}` : ""}`;
  return item.recovery ? `${what}. Way back: ${item.recovery}` : what;
}

function message(body) {
  const way = { steer: "into the turn", interrupt: "instead of the turn" }[body.delivery];
  return human(body.text, [way]);
}

function answer(body) {
  return human([body.decline ? "declines" : "", ...(body.choices ?? []), body.text].filter(Boolean).join("; "), ["answer"]);
}

function call(body) {
  return { tone: "tool", label: body.name, text: given(body.input), fold: { lines: 3, chars: INPUT_CHARS } };
}

/** What a tool is given: as its values where it is an object, and as it came where it is none, or was cut. */
function given(input) {
  let found;
  try {
    found = JSON.parse(input);
  } catch {
    return String(input);
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) return String(input);
  const named = Object.entries(found).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  return named.length === 1 ? named[0][1] : named.map(([name, value]) => `${name}: ${value}`).join("\n");
}

function result(body) {
  const cut = body.cut && body.bytes ? [`cut: ${size(body.bytes)} in all`] : [];
  return { tone: body.ok ? "output" : "output failed", label: body.ok ? "" : "failed", text: body.output || "(no output)", more: cut, fold: OUTPUT };
}

function asked({ question }) {
  const options = (question.options ?? []).map((option, i) => `${i + 1}. ${option}`);
  return { tone: "ask", label: "asks", text: [question.question, question.context, options.join("\n")].filter(Boolean).join("\n\n") };
}

function restored(body) {
  const source = { warm: "the runner's own folder", fresh: "the repository" }[body.source] ?? `checkpoint ${body.checkpoint}`;
  const amount = body.files ? `: ${count(body.files, "file")}, ${size(body.bytes)} in ${span(body.seconds)}` : "";
  const gone = (body.stopped ?? []).map((one) => `not running any more: ${one}`);
  return work("workspace", `restored from ${source}${amount}`, [...gone, body.not_kept?.length && `not kept: ${body.not_kept.join(", ")}`]);
}

function saved({ checkpoint: c }) {
  return work("saved", `checkpoint ${c.n}: ${count(c.files, "file")}, ${size(c.bytes)}, ${size(c.new_bytes)} new, in ${span(c.seconds)}`);
}

function receipt(body) {
  return state("input", `${short(body.input_id)} ${body.status}${body.how ? `: ${body.how}` : ""}${body.code ? ` (${body.code})` : ""}`);
}

const TOLD = new Map(
  Object.entries({
    "session.created": (b) => state("session", `created in ${b.project} for ${b.runtime}`),
    "session.queued": (b) => state("session", b.reason ? `queued: ${b.reason}` : "queued"),
    "session.leased": (b) => state("session", `taken by runner ${b.runner_name || b.runner}`),
    "session.resuming": (b) => state("session", b.checkpoint ? `resumes from checkpoint ${b.checkpoint}` : "resumes in a fresh workspace"),
    "session.parking": (b) => state("session", `parks: ${b.reason}`),
    "session.parked": (b) => state("session", `parked with checkpoint ${b.checkpoint} in ${span(b.seconds)}`, [kept(b)]),
    "session.interrupted": (b) => ({ tone: "trouble", label: "session", text: `lost its runner: ${b.reason}` }),
    "session.ended": (b) => state("session", `ended, ${b.outcome}${b.summary ? `: ${b.summary}` : ""}`, [b.outcome !== "expired" && kept(b)]),
    "session.reopened": () => state("session", "goes on"),
    "session.expiring": (b) => ({ tone: "trouble", label: "keeping", text: `its workspace and conversation are deleted in ${span(b.left_s)}; a message keeps them`, more: [whole(b.expires_at)] }),
    "session.forked": (b) => state("session", `session ${short(b.session)} begins with checkpoint ${b.checkpoint}`),
    "session.rewound": (b) => state("session", `is back at checkpoint ${b.checkpoint}`),
    "turn.started": (b, event) => state("turn", `${event.turn} begins`),
    "turn.ended": (b) => state("turn", `ended: ${b.result}${b.detail ? `, ${b.detail}` : ""}`),
    "user.message": message,
    "user.interrupt": (b) => human(`interrupts the turn${b.drop_queued ? ", drops what is queued" : ""}`),
    "user.answer": answer,
    "user.cancel": () => human("cancels the session"),
    "user.park": () => human("parks the session"),
    "user.resume": () => human("resumes the session"),
    "user.extend": (b) => human(b.until ? `keeps the session until ${whole(b.until)}` : "allows it more", [b.budget_usd && `${b.budget_usd} USD in all`, b.working_s && `${span(b.working_s)} of work in all`]),
    "user.edit": (b) => human(`changes a message${b.text ? `: ${b.text}` : ""}`),
    "user.edited": (b) => state("input", `${short(b.input_id)} is now: ${b.text}`),
    "user.withdraw": (b) => human(`takes ${short(b.input_id)} back`),
    "user.resolve": (b) => human(b.choice === "again" ? `has ${short(b.input_id)} delivered again` : `says that ${short(b.input_id)} was delivered`),
    "user.fork": (b) => human(`forks the session${b.text ? `: ${b.text}` : ""}`),
    "user.rewind": (b) => human(`takes the session back to checkpoint ${b.checkpoint}`),
    "user.receipt": receipt,
    "assistant.message": (b) => ({ tone: "said", label: "", text: b.text }),
    "assistant.thought": (b) => ({ tone: "thought", label: "thinks", text: b.text, fold: OUTPUT }),
    "tool.call": call,
    "tool.result": result,
    "question.asked": asked,
    "question.answered": (b) => state("question", `answered by ${b.by}${b.via ? `, from the ${b.via}` : ""}`),
    "question.declined": (b) => state("question", `declined by ${b.by}`),
    "question.withdrawn": (b) => state("question", `withdrawn: ${b.reason}`),
    "question.superseded": (b) => state("question", `superseded: ${b.reason}`),
    "assumption.recorded": (b) => ({ tone: "thought", label: "assumes", text: b.text, more: [`${b.impact} impact`] }),
    "environment.restored": restored,
    "environment.moved": (b) => work("workspace", `moved from ${b.from} to ${b.to}`),
    "environment.rolled_back": (b) => loss(`rolled back to checkpoint ${b.checkpoint}: ${count(b.turns, "turn")}, ${span(b.seconds)} lost`, b.lost.map(lost)),
    "environment.lost": (b) => loss(`lost: ${b.reason}`, b.lost.map(lost)),
    "environment.expired": () => loss("its workspace and conversation are deleted: nobody came back to it while it was kept"),
    "runtime.started": (b) => work("runtime", `${b.runtime} ${b.version} started`),
    "runtime.resumed": (b) => work("runtime", `conversation resumed: ${b.rung}${b.reason ? ` — ${b.reason}` : ""}`),
    "runtime.exited": (b) => work("runtime", `exited: ${b.reason}`),
    "checkpoint.saved": saved,
    "checkpoint.flagged": (b) => ({ tone: "trouble", label: "saving", text: `${b.what}: ${b.reason}` }),
    "environment.changed": (b) => work("workspace", `its tools are others now: ${JSON.stringify(b.toolchain ?? b)}`),
    "checkpoint.failed": (b) => ({ tone: "trouble", label: "saving", text: `failed: ${b.reason}` }),
    cost: (b) => work("cost", `${b.usd.toFixed(4)} USD, ${b.tokens} tokens, ${b.model}`),
    note: (b) => state("note", b.text),
    error: (b) => ({ tone: "trouble", label: "error", text: b.sentence, more: [b.hint] }),
    gap: (b) => ({ tone: "trouble", label: "gap", text: `what its runner told as ${b.from} to ${b.to} is missing: ${b.reason}` }),
    raw: (b) => ({ tone: "output", label: "raw", text: b.frame, fold: OUTPUT }),
  }),
);
