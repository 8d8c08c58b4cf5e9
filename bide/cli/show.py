"""All of one session on one page: where it stands, what it asks, what people said, what was lost, what is saved."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bide.cli import inert, out, tables, timeline, when
from bide.cli.flags import FLAGS, Flags, SessionName
from bide.client import Client, shapes

LOSSES = ("environment.rolled_back", "environment.lost", "environment.expired")
CHECKPOINTS_SHOWN, INPUTS_SHOWN = 5, 10


async def show(session: SessionName, /, *, flags: Flags = FLAGS) -> None:
    """Show all of one session: questions, inputs, losses, checkpoints."""
    names = timeline.Names()
    async with flags.client() as client:
        named = await client.session_id(session)
        found, questions, inputs, checkpoints, losses = await asyncio.gather(
            client.session(named), client.questions(named), client.inputs(named), client.checkpoints(named),
            _losses(client, named, names),
        )  # fmt: skip
    if flags.json:
        more = {"questions": questions, "inputs": inputs, "losses": losses, "checkpoints": checkpoints}
        out.emit({**found, **more})
        return
    now = datetime.now(UTC)
    parts = [
        f"{inert.line(found['title'])}\n{tables.fields(_head(found, now))}",
        _section("Questions", [_question(one) for one in questions]),
        _section("Inputs", _last([_input(one, inputs) for one in inputs], INPUTS_SHOWN)),
        _section("Losses", [_loss(one, names) for one in losses]),
        _section("Checkpoints", _last([_checkpoint(one) for one in checkpoints], CHECKPOINTS_SHOWN)),
    ]
    out.say("\n\n".join(filter(None, parts)))


async def _losses(client: Client, session: str, names: timeline.Names) -> list[dict[str, Any]]:
    """What the log tells of things that are gone: each event's data with its type, seq and time."""
    found = []
    async for event in client.history(session):
        names.learn(event)
        if event["type"] in LOSSES:
            found.append({**event["data"], "type": event["type"], "seq": event["seq"], "time": event["time"]})
    return found


def _head(one: shapes.Session, now: datetime) -> list[tuple[str, str]]:
    place, saved, source = one["workspace"], one["checkpoint"], one.get("forked_from")
    back = f"; last taken back to checkpoint {one['rewound_to']}" if one.get("rewound_to") else ""
    where = f"on {one['runner_name']}, epoch {one['epoch']}" if one["runner"] else "on no runner"
    branch = f"{place['branch']} {place['head'][:12]}".strip()
    cost, window = one["cost"], when.span(one["limits"].get("online_window_s", 0))
    return [
        ("session", one["id"]),
        ("state", f"{tables.state(one)} since {when.clock(one['since'])} ({when.since(one['since'], now)})"),
        ("reason", one["reason"]),
        ("next", one["next_step"] if one["shown"] == "ended" else f"{one['must_act']}: {one['next_step']}"),
        ("summary", one["summary"]),
        ("project", f"{one['project']}  {place['repository']}".rstrip()),
        ("ticket", one["ticket"] or ""),
        ("fork of", f"session {source['session']}, checkpoint {source['checkpoint']}" if source else ""),
        ("branch", branch),
        ("folder", place["cwd"]),
        ("runtime", f"{one['runtime']} {one['model']}".rstrip() + f", conversation {one['runtime_session_id']}"),
        ("pool", ", ".join((one["pool"], *(f"labelled {label}" for label in one["labels"])))),
        ("runs", f"{where}, turn {one['turn']['n']}"),
        ("workspace", _environment(one["environment"])),
        (
            "saved",
            f"checkpoint {saved['n']}, {when.since(saved['saved_at'], now)} ago" + back if saved else _unsaved(one),
        ),
        ("kept until", tables.kept(one, now)),
        ("cost", _cost(cost, one["limits"])),
        ("waits for", f"{window}, then parks" if one["lifecycle"] == "active" else ""),
    ]


def _cost(cost: shapes.Cost, limits: Mapping[str, float]) -> str:
    """What was spent, and of how much."""
    budget, lifetime = limits.get("budget_usd", 0), limits.get("working_s", 0)
    money = f"{cost['usd']:.2f}" + (f" of {budget:.2f}" if budget else "") + " USD"
    worked = f"worked {when.span(cost['worked_s'])}" + (f" of {when.span(lifetime)}" if lifetime else "")
    return f"{money}, {cost['tokens']} tokens, {worked}" if cost["tokens"] or cost["usd"] or cost["worked_s"] else ""


def _unsaved(one: shapes.Session) -> str:
    gone = {"expired": "not kept any more", "lost": "lost"}
    return gone.get(one["environment"]["state"], "nothing yet")


def _environment(one: shapes.Environment) -> str:
    resets = f", reset {when.count(one['reset_count'], 'time')}" if one["reset_count"] else ""
    source = {"warm": "from the runner's own folder", "checkpoint": "from a checkpoint", "fresh": "from the repository"}
    return f"{one['state']} {source.get(one['resume_source'] or '', '')}".rstrip() + resets


def _section(title: str, entries: Sequence[str]) -> str:
    return f"{title}\n" + "\n".join(entries) if entries else ""


def _last(entries: Sequence[str], count: int) -> Sequence[str]:
    left = len(entries) - count
    return (
        entries
        if left <= 0
        else [f"  ({left} earlier one{'s: --json has them' if left > 1 else ': --json has it'})", *entries[left:]]
    )


def _question(one: shapes.Question) -> str:
    flags = ", ".join([one["status"], *(["blocking"] if one["blocking"] else []), f"{one['impact']} impact"])
    lines = [f"{tables.short(one['id'])}  {flags}", one["question"]]
    lines += [f"{place}. {option}" for place, option in enumerate(one["options"], 1)]
    if (answer := one["answer"]) is not None:
        said = "; ".join([*answer["choices"], *([answer["text"]] if answer["text"] else [])])
        lines.append(f"-> {said}  ({answer['by']} by {answer['via']}, {when.clock(answer['at'])})")
    elif one["status"] == "open":
        lines.append(f"bide answer {tables.short(one['id'])} TEXT")
    return _indented(lines)


def _input(one: shapes.Receipt, among: Sequence[shapes.Receipt]) -> str:
    """With its id where something can be done about it: `bide edit`, `withdraw`, `resolve`."""
    status = one["status"] + (f" in turn {one['turn']}" if one["turn"] else "")
    status += f" ({one['code']})" if one["code"] else ""
    text = inert.line(one["text"])
    what = text if len(text) <= 60 else text[:59] + "…"
    open_ = one["status"] in ("accepted", "unconfirmed") and one["type"] in ("user.message", "user.answer")
    what = f"{tables.short(one['id'], [other['id'] for other in among])}  {what}" if open_ else what
    return f"  {when.clock(one['accepted_at'])}  {one['type'].removeprefix('user.')}, {status}  {what}".rstrip()


def _loss(one: dict[str, Any], names: timeline.Names) -> str:
    told = names.put(timeline.TOLD[one["type"]](one)[1])
    return _indented([f"{when.clock(one['time'])}  {told}"])


def _checkpoint(one: shapes.Checkpoint) -> str:
    quiet = "" if one["consistency"] == "quiet" else ", taken while the turn ran"
    size = f"{one['files']} files, {when.size(one['bytes'])}, {when.size(one['new_bytes'])} new"
    gone = ", not kept any more" if one.get("available") is False else ""
    # Only where it does not follow from the one above it: another line begins there.
    line = f", built upon {one['after']}" if one.get("after") and one["after"] != one["n"] - 1 else ""
    return f"  {one['n']:>3}  {when.clock(one['saved_at'])}  turn {one['turn']}: {size}{quiet}{line}{gone}"


def _indented(lines: Sequence[str]) -> str:
    first, *rest = "\n".join(lines).split("\n")
    return "\n".join([f"  {first}", *(f"    {line}" for line in rest)])
