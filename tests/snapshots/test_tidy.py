"""A session of months must not keep all that it ever wrote, nor be scattered over a thousand small objects."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bide.core import limits
from bide.snapshots.capture import Captured, capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.keyrings import FileKeyring
from bide.snapshots.restore import restore
from bide.snapshots.root import open_root
from bide.snapshots.scan import Tree
from bide.snapshots.verify import verify
from tests.snapshots.depots import depot_at, fill


def saved(depot: Depot, work: Path, n: int, root: str = "s/1") -> Captured:
    parent = f"{root}-{n - 1}" if n > 1 else None
    return capture([Tree("w", work)], depot, f"{root}-{n}", parent, work.parent / "cache")


def comes_back(depot: Depot, work: Path, root: str) -> None:
    verify(root, depot)
    restore(root, depot, {"w": work.parent / "out"})
    assert manifest_of(work.parent / "out") == manifest_of(work)


def test_hundreds_of_small_checkpoints_do_not_scatter_a_session_over_ever_more_objects(
    depot: Depot, work: Path
) -> None:
    fill(work, 50)
    for n in range(1, 4 * limits.PACKS_SMALL_MAX):
        (work / f"turn-{n}").write_bytes(os.urandom(500))
        captured = saved(depot, work, n)
        assert len(captured.packs) < limits.PACKS_SMALL_MAX + 2
    comes_back(depot, work, f"s/1-{n}")


def test_what_was_thrown_away_in_a_session_is_not_kept_for_as_long_as_it_lives(
    depot: Depot, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PACK_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "TIDY_BYTES", 1 << 20)
    for n in range(100):  # in each pack a little that stays
        (work / f"{n:03}-goes").write_bytes(os.urandom(90_000))
        (work / f"{n:03}-stays").write_bytes(os.urandom(3_000))
    before = saved(depot, work, 1)
    for path in work.glob("*-goes"):
        path.unlink()
    for n in range(2, limits.TIDY_EVERY):
        assert saved(depot, work, n).size > before.size * 0.9, "it looks seldom"
    saved(depot, work, limits.TIDY_EVERY)
    after = saved(depot, work, limits.TIDY_EVERY + 1)
    assert after.size < 600_000
    assert after.new_bytes < 10_000
    comes_back(depot, work, after.root)
    assert {ref.id for ref in open_root("s/1-1", depot).record.packs}.isdisjoint(ref.id for ref in after.packs)


def test_a_projects_base_is_never_written_anew_by_one_of_its_sessions(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TIDY_BYTES", 1)
    monkeypatch.setattr(limits, "PACKS_SMALL_MAX", 1)
    for n in range(20):
        (work / f"file-{n}").write_bytes(os.urandom(50_000))
    base = depot_at(tmp_path, "base.p")
    of_base = capture([Tree("w", work)], base, "base.p/1-1")
    keyring = FileKeyring(tmp_path / "keys", "s")
    keyring.publish("base.p/1-1")
    mine = Depot(base.blobs, keyring)
    for n in range(1, 19):
        (work / f"file-{n}").unlink()
        captured = saved(mine, work, n)
        assert {ref.id for ref in of_base.packs} & {ref.id for ref in captured.packs}
    comes_back(mine, work, "s/1-18")
