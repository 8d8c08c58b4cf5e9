"""What stays on a runner's disk after a lease, and what goes when there is too much of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.runner.layout import Layout
from bide.runner.shelf import Mark, Shelf
from tests.runner.sessions import new_root
from tests.runner.shell_parts import CHOICE, SESSION


@pytest.fixture
def root() -> Iterator[Path]:
    with new_root() as made:
        yield made


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
