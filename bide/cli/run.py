"""A task handed over: a repository, what to do, and perhaps a word to wait for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bide.cli import limits, out, tables, when
from bide.cli.commands import WrongUse
from bide.cli.flags import FLAGS, Duration, Flags, KeyText, Usd, text_of
from bide.client import Client, shapes
from bide.core.refusals import Refused

FAILED = 1


async def run(
    repo: Annotated[str, Parameter(help="A git URL, or the path of a repository on the server's machine.")] = "",
    task: Annotated[str, Parameter(help="What to do; `-` reads it from stdin.", allow_leading_hyphen=True)] = "",
    /,
    *,
    project: Annotated[str, Parameter(help="Name of the project; else the repository's own is made or reused.")] = "",
    branch: Annotated[str, Parameter(help="Branch to begin on; else the repository's default.")] = "",
    title: Annotated[str, Parameter(help="What the session is called; else the task's first line.")] = "",
    ticket: Annotated[str, Parameter(help="Key of a ticket in an outside tracker.")] = "",
    runtime: Annotated[str, Parameter(help="Which coding-agent CLI; see `bide runtimes`.")] = "",
    pool: Annotated[str, Parameter(help="Which runners may take it.")] = "",
    label: Annotated[
        tuple[str, ...], Parameter(help="What its runner must be labelled, e.g. gpu or zone=a; may be repeated.")
    ] = (),
    model: Annotated[str, Parameter(help="Which model the runtime asks.")] = "",
    online_window: Annotated[
        Duration | None, Parameter(help="How long it waits for a person before it parks, e.g. 15m.")
    ] = None,
    retention: Annotated[
        Duration | None, Parameter(help="How long it is kept after the last activity, e.g. 30d.")
    ] = None,
    budget: Annotated[Usd | None, Parameter(help="What its model may cost, e.g. 5; 0: no end.")] = None,
    lifetime: Annotated[Duration | None, Parameter(help="How long it may work in all, e.g. 8h.")] = None,
    wait: Annotated[
        shapes.Shown | None, Parameter(help="Return once the session is shown as this, or has ended.")
    ] = None,
    timeout: Annotated[Duration | None, Parameter(help="Wait at most so long; exit code 8 after it.")] = None,
    recap: Annotated[
        str,
        Parameter(
            help="Take up this session, e.g. one that is no longer kept: the new one is told its task, what was asked and "
            "answered, and its last words. REPO and TASK may be left out then."
        ),
    ] = "",
    dry_run: Annotated[bool, Parameter(help="Start nothing; print the limits that would hold.")] = False,
    key: Annotated[KeyText, Parameter(help="Idempotency key: the same key is the same session.")] = "",
    flags: Flags = FLAGS,
) -> int:
    """Start a session on a repository. It works on by itself; `bide attach` follows it."""
    if not (repo and task) and not recap:
        raise WrongUse("It needs a repository and a task.", "See `bide run --help`.")
    windows = {
        "online_window_s": online_window, "retention_s": retention, "budget_usd": budget, "working_s": lifetime,
    }  # fmt: skip
    async with flags.client() as client:
        started = await client.create_session(
            text_of(task), repository=repository(repo) if repo else "", project=project, branch=branch, title=title,
            ticket=ticket, runtime=runtime, pool=pool, model=model, labels=label,
            settings={name: value for name, value in windows.items() if value is not None}, dry_run=dry_run,
            recap_of=await client.session_id(recap) if recap else "", key=key,
        )  # fmt: skip
        if dry_run:
            _print_dry(started, flags)
            return 0
        session = started["session"]
        if wait is None:
            _print(session, flags)
            return 0
        return await _wait(client, session, wait, timeout, flags)


def repository(given: str) -> str:
    """A local path made absolute, from within the repository too; anything else as it is."""
    if "://" in given or (":" in given.partition("/")[0] and not Path(given).exists()):
        return given
    path = Path(given).expanduser().absolute()
    top = next((folder for folder in (path, *path.parents) if (folder / ".git").exists()), None)
    return str((top or path).resolve())


async def _wait(client: Client, session: shapes.Session, word: str, timeout: float | None, flags: Flags) -> int:
    out.tell(f"Session {session['id']}. Returns when the session is `{word}`.")

    def changed(now: shapes.Session) -> None:
        out.tell(f"{datetime.now(UTC).astimezone():%H:%M:%S}  {tables.state(now)}  {now['reason']}".rstrip())

    try:
        found = await client.wait_for(session["id"], word, timeout_s=timeout, on_change=changed, on_trouble=out.tell)
    except asyncio.CancelledError:  # Ctrl-C
        out.tell(out.LEFT)
        raise
    except Refused as refused:
        if refused.code == "timed_out":
            refused.more["session"] = session["id"]
        raise
    _print(found, flags)
    missed = found["shown"] != word
    if missed or found["outcome"] == "failed":
        out.tell(f"The session has ended ({found['outcome']}). {found['summary'] or found['reason']}".rstrip())
    return FAILED if found["outcome"] == "failed" or (missed and found["outcome"] != "completed") else 0


def _print(session: shapes.Session, flags: Flags) -> None:
    if flags.json:
        out.emit(session)
        return
    out.say(session["id"])
    name = tables.short(session["id"])
    out.tell(f"{tables.state(session)}; {tables.step(session)}\nFollow it with `bide attach {name}`.")


def _print_dry(started: shapes.Started, flags: Flags) -> None:
    if flags.json:
        out.emit(started)
        return
    session = started["session"]
    rows = [
        ("project", f"{session['project']}  {session['workspace']['repository']}".rstrip()),
        ("runtime", session["runtime"]),
        ("pool", session["pool"]),
        ("waits for", when.span(session["limits"]["online_window_s"]) + ", then parks"),
        ("is kept", when.span(session["limits"]["retention_s"]) + " after it last did anything, then deleted"),
        ("now", session["reason"]),
    ]
    out.say(f"Nothing was started. It would be:\n\n{tables.fields(rows)}\n")
    limits.table(started["limits"])
