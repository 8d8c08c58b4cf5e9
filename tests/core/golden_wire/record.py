"""Records what runner and server say to each other: `python -m tests.core.golden_wire.record` in the repository's root,
once per protocol version, when it is released.

The file N.jsonl beside this one has one message of every kind in protocol N, with no field at its default and one fact
of every type that a runner tells. Peers one release apart have to understand them, so a file is never recorded again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct, inspect

from bide.core import facts as f
from bide.core import wire
from tests.store.golden.record import unusual

FOLDER = Path(__file__).parent
KINDS: dict[str, type[Struct]] = {
    kind.__name__: kind
    for kind in (wire.Register, wire.Registered, wire.Sync, wire.SyncReply, wire.FactsPost, wire.FactsReply)
}


class Said(Struct, frozen=True, kw_only=True):
    """One line: the kind of message, and its body as it goes over the wire."""

    kind: str
    body: msgspec.Raw


def sample(kind: type[Struct]) -> dict[str, Any]:
    """One message of the kind."""
    found: dict[str, Any] = unusual(inspect.type_info(kind))
    if "protocol" in found:
        found["protocol"] = wire.PROTOCOL
    if "facts" in found:
        kinds = sorted(get_args(f.RunnerFact), key=f.tag_of)
        found["facts"] = [{**unusual(inspect.type_info(each)), "type": f.tag_of(each)} for each in kinds]
    return found


def main() -> None:
    lines = []
    for name, kind in KINDS.items():
        body = msgspec.json.encode(msgspec.convert(sample(kind), kind))
        lines.append(msgspec.json.encode(Said(kind=name, body=msgspec.Raw(body))) + b"\n")
    with (FOLDER / f"{wire.PROTOCOL}.jsonl").open("xb") as file:
        file.write(b"".join(lines))


if __name__ == "__main__":
    main()
