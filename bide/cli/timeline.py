"""Events as lines of text: when, who or what, and what happened. Unknown types are shown with what they hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from bide.cli import inert, when
from bide.cli.tables import short, wrapped
from bide.client.shapes import Event
from bide.core.limits import SHOWN_INPUT_CHARS
from bide.core.quantities import amount

LABEL = 10
INDENT = " " * (8 + 2 + LABEL + 2)
OUTPUT_LINES = 8

Body = Mapping[str, Any]


class Timeline:
    """Remembers the day, so that it is said once, and what runners are called. `width` 0: lines are not wrapped.

    Unless `receipts` are wanted, those that only say that an input arrived are left out: the turn shows it.
    """

    def __init__(self, *, width: int = 0, receipts: bool = True) -> None:
        self._day: date | None = None
        self._names, self._width, self._receipts = Names(), width, receipts

    def lines(self, event: Event) -> list[str]:
        """The event as it is printed, safe for a terminal; nothing for what is left out."""
        self._names.learn(event)
        if not self._receipts and event["type"] == "user.receipt" and _arrived(event["data"]):
            return []
        at = when.parsed(event["time"])
        assert at is not None, "every event has its time"
        here = when.local(at)
        found = [] if here.date() == self._day else [f"-- {here:%A} {here.day} {here:%B %Y} --"]
        self._day = here.date()
        label, text = told(event)
        shown = inert.text(self._names.put(text)).rstrip("\n").split("\n")
        if self._width:
            shown = [part for line in shown for part in wrapped(line, self._width - len(INDENT))]
        first, *rest = shown
        found.append(f"{here:%H:%M:%S}  {inert.line(label)[:LABEL]:<{LABEL}}  {first}".rstrip())
        return found + [f"{INDENT}{line}".rstrip() for line in rest]


class Names:
    """What runners are called, learned from the events of a session."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def learn(self, event: Event) -> None:
        """Takes the name that a lease tells."""
        body = event["data"]
        if event["type"] == "session.leased" and body.get("runner") and body.get("runner_name"):
            self._known[str(body["runner"])] = str(body["runner_name"])

    def put(self, text: str) -> str:
        """The text with names in place of ids."""
        for known, name in self._known.items():
            text = text.replace(known, name)
        return text


def _arrived(body: Body) -> bool:
    """Whether a receipt says nothing that the events around it do not say."""
    return (body.get("status"), body.get("how") or "") in (
        ("delivered", ""), ("delivered", "next_turn"), ("delivered", "interrupt"), ("delivered", "steer"),
        ("consumed", ""), ("consumed", "in the conversation"), ("consumed", "done"),
    )  # fmt: skip


def told(event: Event) -> tuple[str, str]:
    """Label and text of an event."""
    kind, body = event["type"], event["data"]
    try:
        tell = TOLD.get(kind)
        label, text = (
            tell(body) if tell else (kind.partition(".")[0], f"{kind.partition('.')[2]} {_rest(body)}".strip())
        )
    except (KeyError, TypeError, AttributeError, ValueError):  # a newer server may say it otherwise
        label, text = kind, _rest(body)
    if body.get("cut") and body.get("bytes"):
        text += f"\n… cut, {when.size(body['bytes'])} in all" + (
            f": bide logs {short(event['session_id'])} --whole {event['seq']}" if body.get("blob") else ""
        )
    if kind.startswith("user.") and kind != "user.receipt":
        label = event["actor"] or label
    return label, text


def lost(item: Body) -> str:
    """One thing that is gone, as a line."""
    parts = [str(item.get("what", ""))]
    if item.get("bytes"):
        parts.append(f"({when.size(item['bytes'])})")
    text = " ".join(parts) + (f": {item['reason']}" if item.get("reason") else "")
    return text + (f". Way back: {item['recovery']}" if item.get("recovery") else "")


def question(asked: Body) -> str:
    """A question with its options."""
    lines = [str(asked["question"])]
    lines += [str(asked["context"])] if asked.get("context") else []
    lines += [f"  {place}. {option}" for place, option in enumerate(asked.get("options") or (), 1)]
    return "\n".join([*lines, f"bide answer {short(asked['id'])} TEXT"])


def _message(body: Body) -> tuple[str, str]:
    way = {"steer": "[into the turn] ", "interrupt": "[instead of the turn] "}.get(body.get("delivery", ""), "")
    return "message", way + body["text"]


def _created(body: Body) -> tuple[str, str]:
    source = body.get("forked_from")
    begins = f", with checkpoint {source['checkpoint']} of session {short(source['session'])}" if source else ""
    return "session", f"created in {body['project']} for {body['runtime']}{begins}"


def _fork(body: Body) -> tuple[str, str]:
    source = f"from checkpoint {body['checkpoint']}" if body["checkpoint"] else "from the newest checkpoint"
    return "fork", f"forks the session {source}" + (f": {body['text']}" if body.get("text") else "")


def _rewound(body: Body) -> tuple[str, str]:
    moved = [f"{when.count(len(body[word]), 'input')} {word}" for word in ("abandoned", "restored") if body[word]]
    return "session", f"is back at checkpoint {body['checkpoint']}" + (f": {', '.join(moved)}" if moved else "")


def _answer(body: Body) -> tuple[str, str]:
    said = "; ".join(filter(None, ("declines" if body.get("decline") else "", *body["choices"], body["text"])))
    return "answer", f"[answer to {short(body['question_id'])}] {said}"


def _receipt(body: Body) -> tuple[str, str]:
    how = f" {body['how']}" if body.get("how") else ""
    code = f" ({body['code']})" if body.get("code") else ""
    return "input", f"{short(body['input_id'])} {body['status']}{how}{code}"


def _call(body: Body) -> tuple[str, str]:
    given = " ".join(str(body["input"]).split())
    return "tool", f"{body['name']} {given[:SHOWN_INPUT_CHARS]}{'…' if len(given) > SHOWN_INPUT_CHARS else ''}"


def _result(body: Body) -> tuple[str, str]:
    lines = str(body["output"]).rstrip().split("\n")
    more = len(lines) - OUTPUT_LINES
    shown = lines[:OUTPUT_LINES] + ([f"… {when.count(more, 'more line')}"] if more > 0 else [])
    return ("result" if body["ok"] else "failed"), "\n".join(shown)


def _restored(body: Body) -> tuple[str, str]:
    source = {"warm": "the runner's own folder", "fresh": "the repository"}.get(body["source"])
    text = f"restored from {source or 'checkpoint ' + str(body['checkpoint'])}"
    if body.get("files"):
        text += f": {body['files']} files, {when.size(body['bytes'])} in {when.span(body['seconds'])}"
    more = [f"not running any more: {one}" for one in body.get("stopped") or ()]
    more += [f"not kept: {', '.join(body['not_kept'])}"] if body.get("not_kept") else []
    return "workspace", "\n".join([text, *more])


def _rolled_back(body: Body) -> tuple[str, str]:
    text = f"rolled back to checkpoint {body['checkpoint']}: {when.count(body['turns'], 'turn')}, {when.span(body['seconds'])} lost"
    return "LOSS", "\n".join([text, *(f"- {lost(item)}" for item in body["lost"])])


def _gone(body: Body) -> tuple[str, str]:
    return "LOSS", "\n".join([f"lost: {body['reason']}", *(f"- {lost(item)}" for item in body["lost"])])


def _saved(body: Body) -> tuple[str, str]:
    saved = body["checkpoint"]
    return "saved", (
        f"checkpoint {saved['n']}: {saved['files']} files, {when.size(saved['bytes'])}, "
        f"{when.size(saved['new_bytes'])} new, {when.span(saved['seconds'])}"
    )


def _parked(body: Body) -> tuple[str, str]:
    return (
        "session", f"parked with checkpoint {body['checkpoint']} in {when.span(body['seconds'])}{_kept(body)}"
    )  # fmt: skip


def _ended(body: Body) -> tuple[str, str]:
    kept = "" if body["outcome"] == "expired" else _kept(body)
    return "session", f"ended, {body['outcome']}{kept}" + (f": {body['summary']}" if body["summary"] else "")


def _kept(body: Body) -> str:
    return f", kept until {_moment(body['expires_at'])}" if body.get("expires_at") else ""


def _extended(body: Mapping[str, Any]) -> str:
    if body.get("until"):
        return f"keeps the session until {_moment(body['until'])}"
    more = [
        f"{amount(body[name], unit)} {what}"
        for name, unit, what in (("budget_usd", "usd", "in all"), ("working_s", "s", "of work in all"))
        if body.get(name)
    ]
    return f"allows it {' and '.join(more)}"


def _moment(text: str) -> str:
    """With its zone and day: a log is read at other times and in other places."""
    at = when.parsed(text)
    return f"{when.local(at):%a} {when.local(at).day} {when.local(at):%b %Y %H:%M %Z}" if at else ""


def _expiring(body: Body) -> tuple[str, str]:
    left, until = when.span(body["left_s"]), _moment(body["expires_at"])
    return (
        "KEEPING",
        f"its workspace and conversation are deleted in {left}, {until}; a message or `bide extend` keeps them",
    )


def _expired(body: Body) -> tuple[str, str]:
    return "LOSS", "its workspace and conversation are deleted: nobody came back to it while it was kept"


def _trouble(body: Body) -> tuple[str, str]:
    return "error", f"{body['sentence']}" + (f"\n{body['hint']}" if body.get("hint") else "")


def _turn_ended(body: Body) -> tuple[str, str]:
    return "turn", f"ended: {body['result']}" + (f", {body['detail']}" if body.get("detail") else "")


TOLD: dict[str, Callable[[Body], tuple[str, str]]] = {
    "session.created": _created,
    "session.queued": lambda b: ("session", f"queued: {b['reason']}" if b["reason"] else "queued"),
    "session.leased": lambda b: ("session", f"taken by runner {b['runner_name'] or b['runner']}"),
    "session.resuming": lambda b: (
        "session",
        f"resumes from checkpoint {b['checkpoint']}" if b["checkpoint"] else "resumes in a fresh workspace",
    ),
    "session.parking": lambda b: ("session", f"parks: {b['reason']}"),
    "session.parked": _parked,
    "session.interrupted": lambda b: ("session", f"lost its runner: {b['reason']}"),
    "session.ended": _ended,
    "session.expiring": _expiring,
    "session.reopened": lambda b: ("session", "goes on"),
    "session.forked": lambda b: ("session", f"session {short(b['session'])} begins with checkpoint {b['checkpoint']}"),
    "session.rewound": _rewound,
    "turn.started": lambda b: ("turn", "begins"),
    "turn.ended": _turn_ended,
    "user.message": _message,
    "user.interrupt": lambda b: ("stop", "interrupts the turn" + (", drops what is queued" * bool(b["drop_queued"]))),
    "user.answer": _answer,
    "user.cancel": lambda b: ("cancel", "cancels the session"),
    "user.park": lambda b: ("park", "parks the session"),
    "user.resume": lambda b: ("resume", "resumes the session"),
    "user.extend": lambda b: ("extend", _extended(b)),
    "user.fork": _fork,
    "user.rewind": lambda b: ("rewind", f"takes the session back to checkpoint {b['checkpoint']}"),
    "user.edit": lambda b: ("change", f"wants {short(b['input_id'])} changed"),
    "user.edited": lambda b: ("change", f"{short(b['input_id'])} says now: {b['text']}"),
    "user.withdraw": lambda b: ("change", f"takes {short(b['input_id'])} back"),
    "user.resolve": lambda b: (
        "change",
        f"says that {short(b['input_id'])} {'was delivered' if b['choice'] == 'delivered' else 'is to be delivered again'}",
    ),
    "user.receipt": _receipt,
    "assistant.message": lambda b: ("says", b["text"]),
    "assistant.thought": lambda b: ("thinks", b["text"]),
    "tool.call": _call,
    "tool.result": _result,
    "question.asked": lambda b: ("ASKS", question(b["question"])),
    "question.answered": lambda b: ("question", f"{short(b['question_id'])} answered by {b['by']}"),
    "question.declined": lambda b: ("question", f"{short(b['question_id'])} declined by {b['by']}"),
    "question.withdrawn": lambda b: ("question", f"{short(b['question_id'])} withdrawn: {b['reason']}"),
    "question.superseded": lambda b: ("question", f"{short(b['question_id'])} {b['reason']}"),
    "assumption.recorded": lambda b: ("assumes", f"{b['text']} ({b['impact']} impact)"),
    "environment.restored": _restored,
    "environment.moved": lambda b: ("workspace", f"moved from {b['from']} to {b['to']}"),
    "environment.rolled_back": _rolled_back,
    "environment.lost": _gone,
    "environment.expired": _expired,
    "runtime.started": lambda b: ("runtime", f"{b['runtime']} {b['version']} started"),
    "runtime.resumed": lambda b: (
        "runtime",
        f"conversation resumed: {b['rung']}" + (f" — {b['reason']}" if b["reason"] else ""),
    ),
    "runtime.exited": lambda b: ("runtime", f"exited: {b['reason']}"),
    "checkpoint.saved": _saved,
    "checkpoint.failed": lambda b: ("saving", f"failed: {b['reason']}"),
    "cost": lambda b: ("cost", f"{b['usd']:.4f} USD, {b['tokens']} tokens, {b['model']}"),
    "note": lambda b: ("note", b["text"]),
    "error": _trouble,
    "gap": lambda b: ("GAP", f"what its runner told as {b['from']} to {b['to']} is missing: {b['reason']}"),
    "raw": lambda b: ("raw", b["frame"][:SHOWN_INPUT_CHARS]),
}


def _rest(body: Body) -> str:
    return json.dumps(body, ensure_ascii=False, default=str)
