"""Somebody who meddles while a checkpoint is restored, or has prepared the place, cannot lead it elsewhere."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.losses import BadFolder, Hostile
from bide.snapshots.manifest import Entry
from bide.snapshots.restore import restore
from tests.snapshots import tiny
from tests.snapshots.lies import OUTSIDE, below, file, folder, link, store


class Swapper:
    """Somebody who turns folders below `top` into links to the outside, and back, as fast as it goes."""

    def __init__(self, top: Callable[[], Path | None], outside: Path) -> None:
        self._top, self._outside, self._over = top, outside, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.swaps = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            top = self._top()
            for path in [top / f"d{n}" for n in range(8)] if top else ():
                aside = path.with_name(f"aside-{path.name}")
                try:
                    path.rename(aside)
                    path.symlink_to(self._outside)
                    self.swaps += 1
                    path.unlink()
                    aside.rename(path)
                except OSError:
                    continue


@pytest.mark.parametrize("warm", [False, True])
def test_folders_swapped_for_links_meanwhile_never_lead_out(room: Path, depot: Depot, warm: bool) -> None:
    work, target = room / "work", room / "target"
    for version in (1, 2):
        for n in range(8):
            (work / f"d{n}" / "deep").mkdir(parents=True, exist_ok=True)
            for k in range(6):
                (work / f"d{n}" / "deep" / f"f{k}").write_text(f"new {version}")
                (work / f"d{n}" / f"f{k}").write_text(f"new {version}")
        tiny.save(depot, f"s/1-{version}", {"w": work})
    restore("s/1-1", depot, {"w": target}, cache_dir=room / "cache")
    before = manifest_of(room / OUTSIDE)

    def top() -> Path | None:
        return target if warm else next(room.glob(".target.restoring-*"), None)

    with Swapper(top, room / OUTSIDE) as swapper:
        for n in range(40):
            with contextlib.suppress(BadFolder):
                restore(f"s/1-{n % 2 + 1}", depot, {"w": target}, cache_dir=room / "cache", warm=warm)
            assert manifest_of(room / OUTSIDE) == before
            if swapper.swaps > 20 and n > 6:
                break
    assert swapper.swaps
    restore("s/1-2", depot, {"w": target}, cache_dir=room / "cache", warm=warm)
    assert manifest_of(target) == manifest_of(work)
    assert manifest_of(room / OUTSIDE) == before


def test_a_target_that_is_a_link_is_refused_and_what_it_leads_to_untouched(room: Path, depot: Depot) -> None:
    store(depot, folder(b"", file(b"x")))
    (room / "way").symlink_to(room / OUTSIDE)
    before = manifest_of(room / OUTSIDE)
    for warm in (False, True):
        with pytest.raises(BadFolder):
            restore("s/1-1", depot, {"w": room / "way"}, cache_dir=room / "cache", warm=warm)
    assert manifest_of(room / OUTSIDE) == before


def test_a_warm_folder_is_not_led_out_by_a_checkpoint_made_for_it(room: Path, depot: Depot) -> None:
    store(depot, folder(b"", below(b"sub"), file(b"x")), folder(b"sub", file(b"y")))
    target = {"w": room / "target"}
    restore("s/1-1", depot, target, cache_dir=room / "cache")
    sly = [
        (folder(b"", link(b"sub", bytes(room / OUTSIDE))), folder(b"sub", file(b"canary"))),
        (folder(b"", file(b"x")), folder(b"sub", file(b"y"))),
        (folder(b"", below(b"sub")),),
        (folder(b"", below(b"sub"), Entry(name=b"z", kind="h", target=b"sub/none")), folder(b"sub", file(b"y"))),
    ]
    for n, folders in enumerate(sly):
        store(depot, *folders, root=f"s/2-{n}")
        before = manifest_of(room / "target")
        with pytest.raises(Hostile):
            restore(f"s/2-{n}", depot, target, cache_dir=room / "cache", warm=True)
        assert manifest_of(room / "target") == before
    assert restore("s/1-1", depot, target, cache_dir=room / "cache", warm=True).source == "same"
    assert (room / OUTSIDE / "canary").read_text() == "alive"
