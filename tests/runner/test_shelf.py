"""What stays on a runner's disk after a lease, and what goes when there is too much of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bide.core.limits import SALVAGE_KEEP_S
from bide.runner.layout import Layout
from bide.runner.shelf import Mark, Shelf
from tests.runner.shell_parts import CHOICE, SESSION


def test_the_oldest_warm_folders_and_salvage_go_and_the_newest_stay(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.runner.shelf.WARM_FOLDERS_MAX", 3)
    monkeypatch.setattr("bide.runner.shelf.SALVAGE_FOLDERS_MAX", 3)
    shelf = Shelf(root)
    for nth in range(5):
        Layout(root, f"warm-{nth}").create(CHOICE.uid_outside)
        locked = Layout(root, f"warm-{nth}").workspace / "locked"
        locked.mkdir()
        (locked / "file").write_text("x")
        locked.chmod(0o555)
        Layout(root, f"warm-{nth}").forget()
        shelf.keep(f"warm-{nth}", Mark(root="root", bytes=nth))
        os.utime(root / ".warm" / f"warm-{nth}", (nth, nth))
    assert shelf.warm() == ("warm-2", "warm-3", "warm-4")
    assert [Layout(root, f"warm-{nth}").folder.exists() for nth in range(5)] == [False, False, True, True, True]
    for nth in range(5):
        layout = Layout(root, f"lost-{nth}")
        layout.create(CHOICE.uid_outside)
        layout.forget()
        os.utime(layout.folder, (100 - nth, 100 - nth))  # the last to be put aside was made first of all
        shelf.put_aside(f"lost-{nth}", 1)
        if nth < 4:
            os.utime(root / ".salvage" / f"lost-{nth}-1", (1000 + nth, 1000 + nth))
    assert sorted(path.name for path in (root / ".salvage").iterdir()) == ["lost-2-1", "lost-3-1", "lost-4-1"]


def keep(shelf: Shelf, root: Path, session: str, size: int, age: int) -> None:
    Layout(root, session).create(CHOICE.uid_outside)
    shelf.keep(session, Mark(root=f"{session}/1-1", bytes=size))
    os.utime(root / ".warm" / session, (age, age))


def test_warm_folders_stay_within_their_bytes_and_the_one_unused_longest_goes_first(root: Path) -> None:
    shelf = Shelf(root, warm_bytes=100)
    for age, (session, size) in enumerate((("a", 60), ("b", 30), ("c", 50))):
        keep(shelf, root, session, size, age)
    assert shelf.warm() == ("b", "c")
    assert not Layout(root, "a").folder.exists()


def test_a_folder_that_is_being_taken_up_is_dropped_by_nobody(root: Path) -> None:
    shelf = Shelf(root, warm_bytes=1)
    keep(shelf, root, "a", 50, 1)
    assert shelf.claim("a") == Mark(root="a/1-1", bytes=50)
    assert not shelf.make_room()
    assert Layout(root, "a").folder.exists()


def leave(shelf: Shelf, root: Path, session: str, size: int, age_s: float) -> None:
    """Salvage of so many bytes, put aside so long ago."""
    layout = Layout(root, session)
    layout.create(CHOICE.uid_outside)
    (layout.workspace / "unsaved").write_bytes(os.urandom(size))
    os.link(layout.workspace / "unsaved", layout.workspace / "again")
    with (layout.workspace / "hole").open("wb") as file:
        file.truncate(1 << 40)
    path = shelf.put_aside(session, 1)
    assert path is not None
    os.utime(path, (time.time() - age_s, time.time() - age_s))


def test_salvage_takes_of_the_same_room_as_caches_and_what_nobody_came_for_goes_first(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf = Shelf(root, warm_bytes=3 << 20)
    leave(shelf, root, "older", 1 << 20, 3 * SALVAGE_KEEP_S)
    leave(shelf, root, "old", 1 << 20, 2 * SALVAGE_KEEP_S)
    keep(shelf, root, "warm", 1 << 19, 1)
    assert sorted(path.name for path in (root / ".salvage").iterdir()) == ["old-1", "older-1"]
    keep(shelf, root, "more", 1 << 19, 2)
    assert [path.name for path in (root / ".salvage").iterdir()] == ["old-1"]
    assert shelf.warm() == ("more", "warm")
    said = capsys.readouterr().out
    assert "salvage_removed" in said
    assert "older-1" in said


def test_work_that_was_lost_yesterday_is_not_removed_for_caches_nor_for_later_salvage(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.runner.shelf.SALVAGE_FOLDERS_MAX", 2)
    shelf = Shelf(root, warm_bytes=1 << 20)
    for name in ("a", "b", "c"):
        leave(shelf, root, name, 1 << 20, SALVAGE_KEEP_S / 3)
    keep(shelf, root, "warm", 1 << 19, 1)
    keep(shelf, root, "newest", 1 << 19, 2)
    assert sorted(path.name for path in (root / ".salvage").iterdir()) == ["a-1", "b-1", "c-1"]
    assert shelf.warm() == ("newest",)


def test_a_full_disk_that_salvage_could_not_help_keeps_what_is_young_of_it(root: Path) -> None:
    shelf = Shelf(root)
    leave(shelf, root, "a", 1 << 20, 1)
    assert not shelf.make_room(1 << 60, "b")
    assert (root / ".salvage" / "a-1").exists()


def test_nothing_stays_of_a_session_that_was_deleted(root: Path) -> None:
    shelf = Shelf(root)
    keep(shelf, root, SESSION, 1, 1)
    shelf.put_aside(SESSION, 4)
    keep(shelf, root, SESSION, 1, 2)
    (shelf.cache(SESSION) / "rows").write_text("names of files")
    assert shelf.keeps() == (SESSION,)
    shelf.forget(SESSION)
    assert shelf.keeps() == ()
    assert not [path for path in root.rglob("*") if SESSION in str(path)]
