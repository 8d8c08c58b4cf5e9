"""Breaks a fleet for a while, and says whether it kept its promises.

Usage: python -m chaos [--seed N] [--seconds S] [--sessions N] [--every S] [--away S] [--keep]

Tells the story of the faults on stderr; the last line on stdout is one JSON object. Exit code 1: a promise was broken.
CHAOS_SEED and CHAOS_SECONDS are the defaults of the first two.
"""

from __future__ import annotations

import argparse
import os
import sys

from chaos.play import Options, play


def main() -> int:
    """Reads the options and plays."""
    usual = Options()
    parser = argparse.ArgumentParser(prog="chaos")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CHAOS_SEED") or usual.seed))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("CHAOS_SECONDS") or usual.seconds))
    parser.add_argument("--sessions", type=int, default=usual.sessions)
    parser.add_argument("--every", type=float, default=usual.every_s, help="a fault in so many seconds")
    parser.add_argument("--away", type=float, default=usual.away_s, help="how long the database is stopped; 0: not")
    parser.add_argument("--keep", action="store_true", help="keep the folder, also when all is well")
    given = parser.parse_args()
    return play(
        Options(
            seed=given.seed, seconds=given.seconds, sessions=given.sessions, every_s=given.every, away_s=given.away,
            keep=given.keep,
        )
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
