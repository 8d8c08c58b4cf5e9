"""The command line as cyclopts knows it, loaded once a command is to run."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import CoercionError, UnknownCommandError, UnusedCliTokensError

from bide import __version__
from bide.cli.commands import COMMANDS, WrongUse

# Of commands whose optional words cyclopts would call [ARGS].
USAGE = {
    "files": "Usage: bide files [OPTIONS] SESSION [PATH]",
    "diff": "Usage: bide diff [OPTIONS] SESSION [PATH]",
    "fsck": "Usage: bide fsck [OPTIONS] [SESSION]",
    "answer": "Usage: bide answer [OPTIONS] QUESTION [TEXT]",
    "interrupt": "Usage: bide interrupt [OPTIONS] SESSION [TEXT]",
    "run": "Usage: bide run [OPTIONS] REPO TASK",
}


def build() -> App:
    """All commands, each as the name of its place."""
    app = App(
        name="bide",
        help="Runs coding-agent sessions that wait for people.",
        version=__version__,
        help_format="plaintext",
        default_parameter=Parameter(negative=(), show_default=False),
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for order, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=order)
        for place, command in enumerate(commands):
            app.command(
                command.place, name=command.name, help=command.summary, group=group, sort_key=place,
                **({"usage": USAGE[command.name]} if command.name in USAGE else {}),
            )  # fmt: skip
    return app


def call(words: Sequence[str]) -> int:
    """Runs a command and gives its exit code. Raises `WrongUse`, and whatever the command raises."""
    try:
        code = build()(list(words))
    except CycloptsError as error:
        chain = " ".join(("bide", *(error.command_chain or ())))
        raise WrongUse(_sentence(error), f"See `{chain} --help`.") from None
    return code if isinstance(code, int) else 0


def _sentence(error: CycloptsError) -> str:
    match error:
        case CoercionError(msg=str(sentence)):  # our own converters say it all
            return sentence
        case UnknownCommandError():
            return _unknown(error.unused_tokens or [""])
        case UnusedCliTokensError():
            return f"There is no place for {' '.join(error.unused_tokens or ())!r}."
    return " ".join(str(error).split())


def _unknown(words: Sequence[str]) -> str:
    """Cyclopts' own sentence would load every command to find one that is spelled like it."""
    names = [command.name for commands in COMMANDS.values() for command in commands]
    close = difflib.get_close_matches(words[0], names, n=1)
    return f"There is no command {words[0]!r}." + (f" Did you mean {close[0]!r}?" if close else "")
