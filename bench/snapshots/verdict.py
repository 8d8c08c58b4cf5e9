"""What came of it: tables for people, the targets they are held against, and one line for programs."""

from __future__ import annotations

import json

from msgspec import Struct

from bench.board import in_columns, number
from bench.snapshots.contest import Outcome, Score
from bench.snapshots.entrants import ENTRANTS, OPS, TOLD

MANY = 100_000  # entries from which a walk of the tree, not the start of an interpreter, is what counts
SMALL_EXTRA = 500_000  # bytes: lists of files and the root, beside what changed
PEAK_MB = 400.0
NAMED = {"tar_zstd": "tar, zstd -1", "plain": "floor"}
PLAIN = {"unchanged": "walk", "restore": "cp -a", "second": "cat"}


class Target(Struct, frozen=True):
    """One promise: `measured` should be at most `most`, in words of `beside`. None: it could not be measured."""

    what: str
    measured: float | None
    most: float
    beside: str

    @property
    def missed(self) -> bool:
        """Whether it is known not to be kept."""
        return self.measured is not None and self.measured > self.most

    def cells(self) -> tuple[str, str, str, str]:
        """As a row of the table."""
        measured = "not measured" if self.measured is None else f"{number(self.measured)}"
        word = "" if self.measured is None else "MISSED" if self.missed else "met"
        return self.what, measured, f"≤ {number(self.most)} {self.beside}", word


def tables(outcome: Outcome) -> str:
    """The workspace, what everybody took, and the targets."""
    content, lines = outcome.content, []
    lines.append(
        f"{outcome.name}: {content.files:,} files, {content.folders:,} folders, {content.links:,} links, "
        f"{content.bytes / 1e6:,.0f} MB; the small change is {outcome.changed_bytes / 1e3:,.0f} kB"
    )
    lines += [f"{name} does not take part: {reason}" for name, reason in outcome.absent.items()]
    for name, score in outcome.scores.items():
        lines += [f"{name} failed at {TOLD[op]}: {reason}" for op, reason in score.wrong.items()]
    lines += ["", in_columns(_measured(outcome)), "", in_columns(_judged(outcome)), ""]
    return "\n".join(lines)


def _measured(outcome: Outcome) -> list[tuple[str, ...]]:
    scores = outcome.scores
    heads = tuple(f"{NAMED.get(name, name)} {score.version}".strip() for name, score in scores.items())
    rows = [("wall / processor time, s", *heads)]
    rows += [(TOLD[op], *(_times(name, op, score) for name, score in scores.items())) for op in OPS]
    for op, what in (("first", "stored at first, MB"), ("small", "added by the small change, kB"),
                     ("second", "added by the second session, MB")):  # fmt: skip
        unit = 1e3 if op == "small" else 1e6
        grew = [score.grew.get(op) if name != "plain" else None for name, score in scores.items()]
        rows.append((what, *("" if size is None else number(size / unit) for size in grew)))
    rows.append(("peak memory, MB", *(_shown(score.peak_mb()) for score in scores.values())))
    for op in ("restore", "warm"):
        found = (score.differences.get(op) for score in scores.values())
        rows.append((f"differences after {TOLD[op]}", *("" if each is None else f"{each:,}" for each in found)))
    return rows


def _times(name: str, op: str, score: Score) -> str:
    wall, cpu = score.wall_s(op), score.cpu_s(op)
    if wall is None or cpu is None:
        return ""
    return f"{wall:.2f} / {cpu:.2f}" + (f" {PLAIN[op]}" if name == "plain" else "")


def _shown(value: float | None) -> str:
    return "" if value is None else number(value)


def _judged(outcome: Outcome) -> list[tuple[str, ...]]:
    return [("target", "measured", "promised", ""), *(target.cells() for target in targets(outcome))]


def targets(outcome: Outcome) -> list[Target]:
    """What is promised of such a workspace; of a small one only that it comes back, and the memory."""
    ours = outcome.scores.get("bide", Score(""))
    found: list[Target] = []
    if outcome.name != "small":
        found += _ratios(outcome)
        change = ours.grew.get("small")
        found += [
            Target("small change, bytes beyond what changed", _less(change, outcome.changed_bytes), SMALL_EXTRA, "bytes"),
            Target("second session, new bytes", _ratio(ours.grew.get("second"), outcome.content.bytes), 0.015,
                   "× all bytes"),
        ]  # fmt: skip
    found += [
        Target("peak memory, all processes", ours.peak_mb(), PEAK_MB, "MB"),
        Target("differences after a cold restore", ours.differences.get("restore"), 0, ""),
        Target("differences after a warm restore", ours.differences.get("warm"), 0, ""),
    ]
    return found


def _ratios(outcome: Outcome) -> list[Target]:
    def beside(op: str, most: float, whose: str, in_words: str, its: str = "") -> Target:
        ours = outcome.scores["bide"].wall_s(op) if "bide" in outcome.scores else None
        theirs = outcome.scores[whose].wall_s(its or op) if whose in outcome.scores else None
        return Target(TOLD[op], _ratio(ours, theirs), most, f"× {in_words}")

    found = [
        beside("first", 1.1, "tar_zstd", "tar | zstd -1"),
        beside("first", 0.4, "restic", "restic"),
        beside("read_back", 0.25, "bide", "first", "first"),
        beside("unchanged", 0.2, "restic", "restic"),
        beside("again", 1.2, "bide", "nothing changed", "unchanged"),
        beside("restore", 0.4, "restic", "restic"),
        beside("verify", 1.0, "tar_zstd", "zstd -t"),
    ]
    if outcome.name == "build":
        found.append(beside("restore", 0.9, "tar_zstd", "tar -x from zstd"))
    else:
        found.append(beside("restore", 1.0, "plain", "cp -a"))
    if outcome.content.entries >= MANY:
        found += [
            beside("unchanged", 1.5, "plain", "walk"),
            beside("small", 1.8, "plain", "walk", "unchanged"),
            beside("warm", 2.5, "plain", "walk", "unchanged"),
        ]
    return sorted(found, key=lambda target: list(TOLD.values()).index(target.what))


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _less(one: float | None, other: float) -> float | None:
    return None if one is None else max(0.0, one - other)


def line(outcomes: list[Outcome]) -> str:
    """All figures as one JSON object; null is what was not measured, and a peer that is not there."""
    return json.dumps({outcome.name: _figures(outcome) for outcome in outcomes})


def _figures(outcome: Outcome) -> dict[str, object]:
    plain = outcome.scores.get("plain", Score(""))
    found: dict[str, object] = {
        "walk_s": _rounded(plain.wall_s("unchanged")),
        "cp_s": _rounded(plain.wall_s("restore")),
        "cat_s": _rounded(plain.wall_s("second")),
    }
    for name in ENTRANTS:
        if name != "plain":
            score = outcome.scores.get(name)
            found[name] = None if score is None else _figures_of(score)
    return found


def _figures_of(score: Score) -> dict[str, float | int | None]:
    return {
        "first_s": _rounded(score.wall_s("first")),
        "unchanged_s": _rounded(score.wall_s("unchanged")),
        "small_s": _rounded(score.wall_s("small")),
        "small_new_bytes": score.grew.get("small"),
        "second_s": _rounded(score.wall_s("second")),
        "second_new_bytes": score.grew.get("second"),
        "restore_s": _rounded(score.wall_s("restore")),
        "warm_s": _rounded(score.wall_s("warm")),
        "verify_s": _rounded(score.wall_s("verify")),
        "read_back_s": _rounded(score.wall_s("read_back")),
        "bytes": score.grew.get("first"),
        "peak_mb": _rounded(score.peak_mb()),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
