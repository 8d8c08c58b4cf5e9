"""Where a command line comes in, and how every way to end becomes an exit code."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence

from bide import __version__
from bide.cli import inert
from bide.cli.commands import WrongUse, overview
from bide.core.refusals import EXIT_CODE, Refused, Unavailable

OK, USAGE, CTRL_C, NO_READER = 0, 2, 130, 141  # the last two as shells report SIGINT and SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code says how it went (0 ok, 1 failed, 2 usage, 3 refused, 4 to 8 by kind)."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal in another encoding is no reason to fail
    try:
        return _run(words)
    except KeyboardInterrupt:
        return CTRL_C
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more at exit
        return NO_READER


def _run(words: Sequence[str]) -> int:
    as_json = "--json" in words
    try:
        if not words or words[0] in ("--help", "-h", "help"):
            print("\n".join(overview()))
            return OK
        if words[0] == "--version":
            print(__version__)
            return OK
        # Loaded by name, as the commands are: who only asks what there is does not wait for all of it.
        code: int = importlib.import_module("bide.cli.app").call(words)
        return code
    except WrongUse as wrong:
        return _refuse(wrong.problem(), USAGE, as_json=as_json)
    except Refused as refused:
        return _refuse(refused.problem(), EXIT_CODE[refused.kind], as_json=as_json)
    except Unavailable as away:
        gone = Refused("store_unavailable", f"{away.what[:1].upper()}{away.what[1:]} is out of reach: {away.why}.")
        return _refuse(gone.problem(), EXIT_CODE[gone.kind], as_json=as_json)


def _refuse(problem: Mapping[str, object], code: int, *, as_json: bool) -> int:
    if as_json:
        sys.stderr.write(json.dumps(problem, default=str) + "\n")
    else:
        sys.stderr.write(f"bide: {inert.text(problem['detail'])}\n{inert.text(problem['hint'])}\n")
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
