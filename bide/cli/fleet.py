"""What there is to run sessions on: runners and their runtimes."""

from __future__ import annotations

from datetime import UTC, datetime

from bide.cli import out, tables, when
from bide.cli.flags import FLAGS, Flags


async def runners(*, flags: Flags = FLAGS) -> None:
    """List the runners: state, free slots and disk, labels, how they shut sessions in, what they can run."""
    async with flags.client() as client:
        found = await client.runners()
    if flags.json:
        out.listed(found)
        return
    if not found:
        out.tell("No runners. `bide up` starts one, `bide runner` adds one.")
        return
    now = datetime.now(UTC)
    rows = [
        (
            one["name"], one["pool"], one["state"].replace("_", " "), f"{one['slots_free']}/{one['slots']}",
            when.size(one["disk_free"]) if one["disk_free"] else "", ", ".join(one["labels"]), one["isolation"],
            f"{when.since(one['last_seen_at'], now)} ago" if one["last_seen_at"] else "left",
            ", ".join(f"{r['name']} {r['version']}" for r in one["runtimes"] if not r["problem"]) or "no runtime",
        )
        for one in found
    ]  # fmt: skip
    tables.show(
        ("runner", "pool", "state", "free", "disk", "labels", "isolation", "seen", "runtimes"), rows, wraps="runtimes"
    )


async def runtimes(*, flags: Flags = FLAGS) -> None:
    """List the runtimes of the runners that are online, and why one cannot be used."""
    async with flags.client() as client:
        found = await client.runtimes()
    if flags.json:
        out.listed(found)
        return
    if not found:
        out.tell("No runner is online.")
        return
    rows = [
        (
            one["name"], one["version"], ", ".join(one["pools"]), ", ".join(one["runners"]),
            f"{one['problem']} {one['hint']}".strip() or ", ".join(_can(one["capabilities"])),
        )
        for one in found
    ]  # fmt: skip
    tables.show(("runtime", "version", "pool", "runners", "can"), rows, wraps="can")


def _can(capabilities: dict[str, object]) -> list[str]:
    found = [f"resume {capabilities['resume']}"] if "resume" in capabilities else []
    return found + [name.replace("_", " ") for name, there in capabilities.items() if there is True]
