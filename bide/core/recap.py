"""What a new session is told of an earlier one whose workspace it does not have: in plain words, within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bide.core import facts as f
from bide.core.hearing import cut
from bide.core.limits import CUT_MARK_BYTES, RECAP_ITEM_BYTES, RECAP_ITEMS_MAX, RECAP_WORDS_BYTES
from bide.core.session import Session

GO_ON = "Go on with the task of the earlier session."


def recap(s: Session, said: Sequence[str], questions: Iterable[f.Question], last_words: str) -> str:
    """The history of the session as a part of a prompt: its task, what people said since, what it asked, its end.

    `said` are people's messages, the first of them the task; `last_words` the runtime's own last message.
    """
    ended = f", which ended as {s.outcome}" if s.outcome else ""
    place = f" on branch {s.workspace.branch}" if s.workspace.branch else ""
    parts = [
        f"This session takes up session {s.id}{ended}. Its workspace and its conversation are not here: you work in a "
        f"copy of the repository, without what it changed{place} and did not push. What is known of it:",
        _section("Its task was", [s.task]),
        _section("Then people said", _latest(said[1:])),
        _section("It asked, and was told", _latest([_asked(q) for q in questions if q.kind == "ask"])),
        _section("Its last words were", [cut(last_words, RECAP_WORDS_BYTES)[0]]),
        _section("It ended with the summary", [cut(s.summary, RECAP_WORDS_BYTES)[0]]),
    ]
    return "\n\n".join(filter(None, parts))


def prompt_of(prompt: str, history: str, limit: int) -> str:
    """The first prompt: what is wanted now, then the history, cut where both would be longer than `limit` bytes."""
    first = prompt if prompt.strip() else GO_ON
    room = limit - len(first.encode("utf-8", "surrogatepass")) - len("\n\n")
    if len(history.encode("utf-8")) > room:
        history = cut(history, max(0, room - CUT_MARK_BYTES))[0] if room > 2 * CUT_MARK_BYTES else ""
    return f"{first}\n\n{history}" if history else first


def _asked(q: f.Question) -> str:
    told = "nobody answered"
    if q.answer is not None:
        said = "; ".join(filter(None, (*q.answer.choices, q.answer.text)))
        told = f"declined. {said}".strip() if q.status == "declined" else said
    return f"{q.question}\n-> {told}"


def _latest(entries: Sequence[str]) -> list[str]:
    left = len(entries) - RECAP_ITEMS_MAX
    shown = [cut(entry, RECAP_ITEM_BYTES)[0] for entry in entries[-RECAP_ITEMS_MAX:]]
    return [*([f"({left} earlier {'ones are' if left > 1 else 'one is'} left out)"] if left > 0 else []), *shown]


def _section(title: str, entries: Sequence[str]) -> str:
    shown = [entry for entry in entries if entry.strip()]
    return f"{title}:\n" + "\n".join("- " + entry.replace("\n", "\n  ") for entry in shown) if shown else ""
