"""The demo's story: a coding agent that finds a failing test's cause, asks how to fix it, and does what it is told.

It keeps nothing between requests. What it does next follows from the conversation it is shown: which of its calls were
made, what came back, and what a person said. So it goes on wherever a conversation is restored, and where something is
not as it should be (the dependency gone, a test that fails) it does what that asks for, or says so and stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from bide.rehearsal.conversation import Past, Said, bash, read_past, shown
from bide.rehearsal.turns import Call, Request, Turn

TASK = """\
The integration test of this repository fails since plaindate was updated. Find out why, and fix it.

- README.md says how to install the dependency and how to run the tests. There is no network.
- Write a small script repro.py that shows the failure, and keep it uncommitted.
- If there is more than one good fix and they differ in what they mean for our customers, ask me with ask_human: name
  the options, then end your turn.
- After my answer apply that fix and run the whole suite. When everything is done, call finish.
"""
QUESTION = (
    "plaindate 2.0.0 reads 03/04/2026 as 4 March; 1.4.0 read it as 3 April. How should exports be read from now on?"
)
DAY_FIRST = "Read every export day-first, as before"
BY_HEADER = "Read each export as its first line says, and refuse exports without that line"
CONTEXT = f"""\
Both make the test pass, and they differ for customers.

1. {DAY_FIRST}: every export uploaded so far keeps its meaning. An export written month-first is still misread silently.
2. {BY_HEADER}: nothing is ever misread. Exports from before 2025, which have no such line, are refused."""

REPRO = '''\
"""Shows how the dates of the example export are read."""

from pathlib import Path

from orders.reader import read

EXPORT = Path("examples/april.csv")
written = [line.split(";")[0] for line in EXPORT.read_text().splitlines() if not line.startswith("#")]
for text, order in zip(written, read(EXPORT)):
    print(text, "is read as", order.due)
'''
_PLAIN = "    return Order(plaindate.parse(due), shop, Decimal(amount))"
_LINES = '        lines = [line for line in file if not line.startswith("#")]'
_ROWS = '    return [_order(row) for row in csv.reader(lines, delimiter=";")]'
_HEAD = "def _order(row):"
# What each answer changes in orders/reader.py.
FIXES: dict[str, tuple[tuple[str, str], ...]] = {
    DAY_FIRST: ((_PLAIN, _PLAIN.replace("(due)", "(due, day_first=True)")),),
    BY_HEADER: (
        (
            f"{_LINES}\n{_ROWS}",
            "        first, *lines = file\n"
            '    if first.strip() not in ("# dates: day-first", "# dates: month-first"):\n'
            '        raise ValueError(f"{path} does not say in its first line how its dates are written")\n'
            '    day_first = first.strip() == "# dates: day-first"\n'
            '    lines = [line for line in lines if not line.startswith("#")]\n'
            + _ROWS.replace("(row)", "(row, day_first)"),
        ),
        (_HEAD, "def _order(row, day_first):"),
        (_PLAIN, _PLAIN.replace("(due)", "(due, day_first=day_first)")),
    ),
}
LOGGED = {
    DAY_FIRST: "- Exports are read day-first again, as with plaindate 1.4.0.",
    BY_HEADER: "- Exports are read as their first line says. **Breaking**: exports without that line are refused.",
}
UPDATED = "- Updated plaindate from 1.4.0 to 2.0.0."

ASK, ASSUME, FINISH = "mcp__bide__ask_human", "mcp__bide__record_assumption", "mcp__bide__finish"
LOOK = bash("pwd; git log --oneline; cat README.md requirements.txt")
VENV = bash("python3 -m venv --without-pip .venv && echo made")
INSTALL = bash(".venv/bin/python tools/install.py")
FAILING = bash(".venv/bin/python -m unittest tests.test_integration 2>&1")
CAUSE = bash("git show --stat HEAD; cat vendor/plaindate/CHANGES.md orders/reader.py")
RUN_REPRO = bash(".venv/bin/python repro.py | tee repro.log")
BACK = bash(
    "pwd; git status --short --ignored;"
    ' .venv/bin/python -c \'import plaindate; print("plaindate", plaindate.__version__, "is installed")\';'
    " .venv/bin/python repro.py"
)
SUITE = bash(".venv/bin/python -m unittest -v 2>&1")
ASSUMED = Call(ASSUME, {"text": "vendor/ holds exactly what customers run, so I install from there.", "impact": "low"})
ASKED = Call(
    ASK,
    {
        "question": QUESTION,
        "context": CONTEXT,
        "options": [DAY_FIRST, BY_HEADER],
        "blocking": True,
        "impact": "high",
    },
)


class Step(Struct, frozen=True):
    """One thing to do: the words before it, the call, and what its result has to show for the story to go on."""

    words: str
    call: Call
    shows: tuple[str, ...] = ()


def story(request: Request) -> Turn:
    """The next answer of the coding agent."""
    if not request.get("tools"):
        return Turn(text="A test that fails")  # the runtime wants a title
    past = read_past(request)
    asked = past.made(ASKED)
    if asked is None or not asked.ok:
        return _next(past, _first_act(past)) or Turn(text="I cannot ask, so I stop here.")
    later = past.after(asked)
    answer = next((said for said in later.said if "Answer to your question" in said.text), None)
    if answer is None:
        return Turn(text="I have asked, and wait for the answer.")
    return _second_act(past.after(answer), answer)


def _next(past: Past, steps: Sequence[Step]) -> Turn | None:
    """The first step that is not done; None when all are. A step that went wrong ends the turn with the reason."""
    for step in steps:
        deed = past.made(step.call)
        if deed is None:
            return Turn(text=step.words, calls=(step.call,))
        missing = [part for part in step.shows if part not in deed.text]
        if missing or (not step.shows and not deed.ok):
            why = f"{missing[0]!r} does not show" if missing else "it failed"
            return Turn(
                text=f"I stop here, since {shown(step.call)} did not go as it should ({why}): {deed.text[-300:]}"
            )
    return None


def _first_act(past: Past) -> list[Step]:
    return [
        Step("I look at the repository first.", LOOK, ("Update plaindate", "tools/install.py")),
        Step("Now the environment, as the README says.", VENV, ("made",)),
        Step("", ASSUMED),
        Step("", INSTALL, ("Installed plaindate 2.0.0",)),
        Step("The dependency is installed. Does the test fail here too?", FAILING, ("FAILED", "2026, 3, 4")),
        Step("It does: an order of April lands in March. What did the update change?", CAUSE, ("month first",)),
        Step("That is the cause. A script shows it without the test.", _write(past, "repro.py", REPRO)),
        Step("", RUN_REPRO, ("03/04/2026 is read as 2026-03-04",)),
        Step("Reproduced. There are two fixes, and they differ for customers. That is not mine to decide.", ASKED),
    ]


def _second_act(past: Past, answer: Said) -> Turn:
    choice = BY_HEADER if BY_HEADER in answer.text else DAY_FIRST
    changelog = any("changelog" in said.text.lower() for said in past.said)
    steps = [Step("I have the answer. Is everything still here?", BACK)]
    back = past.made(BACK)
    if back is not None:
        steps = [Step("", BACK, ("/",))]
        if "plaindate 2.0.0 is installed" not in back.text:
            steps += [
                Step("The dependency is gone; I install it again.", VENV, ("made",)),
                Step("", INSTALL, ("Installed plaindate 2.0.0",)),
            ]
        if "?? repro.py" not in back.text:
            steps.append(Step("The reproduction is gone; I write it again.", _write(past, "repro.py", REPRO)))
        here = "All of it: the environment, and the script still shows the failure. I apply the fix."
        steps += _edits(past, "orders/reader.py", FIXES[choice], here if len(steps) == 1 else "")
        steps.append(Step("Now the whole suite.", SUITE, ("\nOK",)))
        if changelog:
            logged = ((UPDATED, f"{UPDATED}\n{LOGGED[choice]}"),)
            steps += _edits(past, "CHANGELOG.md", logged, "The suite passes. Now the changelog, as you asked.")
        summary = f"{choice}. The whole suite passes." + (" The changelog says so too." if changelog else "")
        words = "The changelog says so now." if changelog else "The suite passes."
        steps.append(Step(f"{words} That is all.", Call(FINISH, {"summary": summary})))
    return _next(past, steps) or Turn(text="Done.")


def _edits(past: Past, name: str, changes: tuple[tuple[str, str], ...], words: str) -> list[Step]:
    """Reads the file, as its editor demands, then changes it."""
    path = str(_folder(past) / name)
    steps = [Step(words, Call("Read", {"file_path": path}))]
    for old, new in changes:
        steps.append(Step("", Call("Edit", {"file_path": path, "old_string": old, "new_string": new})))
    return steps


def _write(past: Past, name: str, content: str) -> Call:
    return Call("Write", {"file_path": str(_folder(past) / name), "content": content})


def _folder(past: Past) -> PurePosixPath:
    """Where the repository is: what `pwd` said last. It may be another place after a move."""
    for call in (BACK, LOOK):
        deed = past.made(call)
        lines = deed.text.split("\n") if deed else ()
        for line in lines:  # above it the runtime puts an exit code, when there is one
            if line.startswith("/"):
                return PurePosixPath(line)
    return PurePosixPath("/workspace")
