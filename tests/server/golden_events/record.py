"""Records the published schema of events: `python -m tests.server.golden_events.record` in the repository's root, once
for each version of it, when it is released. What is recorded has to be in it for as long as that version lasts.
"""

from __future__ import annotations

import json
from pathlib import Path

from bide.server import events


def main() -> None:
    with (Path(__file__).parent / f"{events.VERSION}.json").open("x") as file:
        file.write(json.dumps(events.schema(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
