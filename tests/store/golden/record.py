"""Records what this release keeps: `python -m tests.store.golden.record N` in the repository's root, once per release.

Into the folder N beside this file go `bide.sqlite` (sessions in every lifecycle, made by commands), `sessions.json`
(what each of them was) and `facts.jsonl` (one fact of every type, with no field at its default). Later releases have to
read them for ever, so a folder is never recorded again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct, inspect

from bide.core import commands as c
from bide.core import facts as f
from bide.core.codec import FACTS_VERSION, encode_fact
from bide.core.limits import DAY
from bide.core.session import Session
from bide.store.base import Engine, Page
from bide.store.sqlite import SqliteStore
from tests.store.story import START, Clock, begin, create, do, grant, question, report, runner, saved, say, uid, words

FOLDER = Path(__file__).parent


class Kept(Struct, frozen=True, kw_only=True):
    """One line of `facts.jsonl`."""

    version: int
    fact: msgspec.Raw


class Was(Struct, frozen=True, kw_only=True):
    """What a session of the database was, in words that no later release may understand differently."""

    lifecycle: str
    outcome: str
    turn: int
    turn_open: bool
    epoch: int
    last_seq: int
    inputs: int
    questions: tuple[str, ...]
    checkpoint: int
    leased: bool
    said: tuple[str, ...]  # the types of its facts, in order


def unusual(kind: inspect.Type, default: object = None) -> Any:
    """A value of this type that is not the default."""
    match kind:
        case inspect.StructType(fields=fields):
            return {field.encode_name: unusual(field.type, field.default) for field in fields}
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [unusual(item), unusual(item)]
        case inspect.DictType(value_type=value):
            return {"one": unusual(value)}
        case inspect.UnionType(types=types):
            return unusual(next(one for one in types if not isinstance(one, inspect.NoneType)), default)
        case inspect.LiteralType(values=values):
            return next(value for value in values if value != default)
        case inspect.BoolType():
            return default is not True
        case inspect.IntType():
            return 7
        case inspect.FloatType():
            return 1.5
        case inspect.StrType():
            return "ünï \0 \u2028 🙂"
    raise AssertionError(f"no value for {kind}")


def facts() -> list[f.Fact]:
    """One fact of every type, sorted by it."""
    kinds = sorted(get_args(f.Fact), key=f.tag_of)
    return [msgspec.convert({**unusual(inspect.type_info(kind)), "type": f.tag_of(kind)}, kind) for kind in kinds]


def fill(engine: Engine, clock: Clock) -> None:
    """Sessions in every lifecycle, and in several states of each."""

    def then(s: Session, *reported: f.RunnerFact) -> Session:
        clock.time += 1
        return do(engine, s.id, report(s, *reported)).session

    def want(s: Session, command: c.Command) -> Session:
        clock.time += 1
        return do(engine, s.id, command).session

    for n in range(12):
        clock.time = START + 100 * n
        if n < 2:
            do(engine, uid("session", n), create(n, ticket="T-1" if n else ""))
            continue
        s = then(begin(engine, n), *words(1, 20), f.ToolCall(id=uid("call"), name="Edit", input='{"file_path":"/w/a"}'))
        if n == 2:  # works
            want(s, say(2, "also this"))
            continue
        s = then(s, f.Receipt(input_id=uid("prompt", n), status="delivered", how="pipe", turn=1))
        s = then(s, f.Receipt(input_id=uid("prompt", n), status="consumed"))
        if n in (3, 5, 6, 7, 11):
            s = then(s, f.QuestionAsked(question=question(n, s.id)))
        if n == 4:  # its runner is lost; it waits for it
            assert s.lease is not None
            clock.time = s.lease.until
            want(s, c.Wake())
            continue
        s = then(s, f.TurnEnded(result="completed"), f.Cost(usd=0.25, tokens=1000, model="m"), saved(s, 1))
        if n == 3:  # waits for the answer, on its runner
            continue
        if n == 8:
            then(s, f.Ended(outcome="completed", summary="done"))
        elif n == 9:
            s = want(s, c.Cancel(id=uid("cancel"), author="ada"))
            then(s, f.Ended(outcome="cancelled", summary="stopped"))
        elif n == 10:  # parks
            want(s, c.Park(id=uid("park"), author="ada"))
        else:
            s = want(s, c.Park(id=uid("park"), author="ada"))
            s = then(s, f.Parked(checkpoint=1, seconds=2.5))
            if n == 6:  # answered, queued again
                want(s, c.Answer(id=uid("answer"), author="bob", question_id=s.questions[0].id, choices=("a",)))
            elif n == 7:
                want(s, c.Extend(id=uid("extend"), author="bob", until=clock.time + 60 * DAY))
            elif n == 11:  # resumed elsewhere
                s = want(s, c.Answer(id=uid("answer"), author="bob", question_id=s.questions[0].id, decline=True))
                s = want(s, grant("r2"))
                then(s, f.EnvironmentRestored(source="checkpoint", checkpoint=1), f.RuntimeResumed(rung="native"))
    for name in ("r1", "r2"):
        engine.put_runner(runner(name))
    engine.put("project", "p", b'{"name":"p"}')


def was(engine: Engine, s: Session) -> Was:
    """What the session is."""
    return Was(
        lifecycle=s.lifecycle.value, outcome=s.outcome, turn=s.turn.n, turn_open=s.turn.open, epoch=s.epoch,
        last_seq=s.last_seq, inputs=len(engine.inputs(s.id)), questions=tuple(q.id for q in s.questions),
        checkpoint=s.checkpoint.n if s.checkpoint else 0, leased=s.lease is not None,
        said=tuple(e.type for e in engine.events(s.id, 0, 1000)),
    )  # fmt: skip


def main(release: str) -> None:
    folder = FOLDER / release
    folder.mkdir()
    lines = [msgspec.json.encode(Kept(version=FACTS_VERSION, fact=msgspec.Raw(encode_fact(fact)))) for fact in facts()]
    (folder / "facts.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    store = SqliteStore(folder / "bide.sqlite", clock := Clock())
    fill(store, clock)
    found = {s.id: was(store, s) for s in store.sessions(Page(limit=1000))}
    store.close()
    (folder / "bide.sqlite.lock").unlink()
    (folder / "sessions.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
