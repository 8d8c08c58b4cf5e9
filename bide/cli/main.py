"""Where a command line comes in, and how every way to end becomes an exit code."""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence

from bide import __version__
from bide.cli import inert
from bide.cli.commands import WrongUse, overview
from bide.core.problems import problem
from bide.core.refusals import EXIT_CODE, Refused, Unavailable

OK, FAILED, USAGE, CTRL_C, NO_READER = 0, 1, 2, 130, 141  # the last two as shells report SIGINT and SIGPIPE
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code says how it went (0 ok, 1 failed, 2 usage, 3 refused, 4 to 8 by kind)."""
    words = _in_order(sys.argv[1:] if argv is None else argv)
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
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = f" ({error.filename})" if error.filename else ""
        sys.stderr.write(f"bide: What there is to say cannot be written{where}: {error.strerror}.\n")
        return FAILED


def _in_order(given: Sequence[str]) -> list[str]:
    """The words with a --json that comes before the verb behind it."""
    words = list(given)
    early = 0
    while early < len(words) and words[early] == "--json":
        early += 1
    rest = words[early:]
    if not early or not rest:
        return words
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], "--json", *rest[end:]]


def _run(words: Sequence[str]) -> int:
    as_json = "--json" in words
    try:
        if not words or words[0] in ("--help", "-h", "help"):
            print("\n".join(overview()), flush=True)
            return OK
        if words[0] == "--version":
            print(__version__)
            return OK
        # Loaded by name, as the commands are: who only asks what there is does not wait for all of it.
        code: int = importlib.import_module("bide.cli.app").call(words)
        return code
    except UnicodeEncodeError:
        odd = next((word for word in words if not _is_text(word)), None)
        if odd is None:
            raise
        wrong = WrongUse(f"{odd!a} is not UTF-8 text.", "Only the names of files may be anything.")
        return _refuse(wrong.problem(), USAGE, as_json=as_json)
    except WrongUse as wrong:
        return _refuse(wrong.problem(), USAGE, as_json=as_json)
    except Refused as refused:
        return _refuse(problem(refused), EXIT_CODE[refused.kind], as_json=as_json)
    except Unavailable as away:
        gone = Refused("store_unavailable", f"{away.what[:1].upper()}{away.what[1:]} is out of reach: {away.why}.")
        return _refuse(problem(gone), EXIT_CODE[gone.kind], as_json=as_json)


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(shown: Mapping[str, object], code: int, *, as_json: bool) -> int:
    if as_json:
        sys.stderr.write(json.dumps(shown, default=str) + "\n")
    else:
        sys.stderr.write(f"bide: {inert.text(shown['detail'])}\n{inert.text(shown['hint'])}\n")
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
