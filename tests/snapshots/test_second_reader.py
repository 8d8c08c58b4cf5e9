"""Whoever has the objects and the keys gets the work back with tools/read_checkpoint.py, which shares nothing with bide."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bide.snapshots.capture import capture
from bide.snapshots.compare import manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.exported import exported
from bide.snapshots.manifest import LINK, Entry, Folder
from bide.snapshots.scan import Tree
from tests.snapshots import random_trees
from tests.snapshots.depots import depot_at
from tests.snapshots.random_trees import FolderSpec, room
from tests.snapshots.tiny import Writing, save, seal, tree_of
from tools import read_checkpoint as second_reader

pytestmark = pytest.mark.usefixtures("lists_in_parts")
READER = Path(second_reader.__file__)


def read(folder: Path, depot: Depot, root: str, target: Path) -> subprocess.CompletedProcess[str]:
    """Runs the reader as a stranger would."""
    keys = folder / "keys.json"
    keys.write_bytes(exported(root, depot.keyring.keys(root)))
    argv: list[str | Path] = [sys.executable, READER, folder / "blobs", keys, target]
    return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_trees.trees, random_trees.trees, st.integers(0, 10_000))
def test_every_checkpoint_comes_back_bit_for_bit_without_bide(first: FolderSpec, second: FolderSpec, seed: int) -> None:
    with room() as here:
        work, depot = here / "work", depot_at(here)
        work.mkdir()
        random_trees.build(work, first)
        before = manifest_of(work)
        capture([Tree("w", work)], depot, "s/1-1", cache_dir=here / "cache")
        random_trees.meddle(work, seed)
        random_trees.build(work, second)
        after = manifest_of(work)
        capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1", cache_dir=here / "cache")
        for root, wanted in (("s/1-1", before), ("s/1-2", after)):
            keys = json.loads(exported(root, depot.keyring.keys(root)))
            opened = second_reader.Checkpoint(here / "blobs", keys)
            second_reader.Tree(opened, opened.root["trees"][0], here / root)
            assert opened.losses == []
            assert manifest_of(here / root) == wanted


def test_all_trees_come_back_each_in_a_folder_of_its_name_and_paths_are_never_too_long(tmp_path: Path) -> None:
    depot = depot_at(tmp_path)
    for name in ("workspace", "home"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    at = os.open(tmp_path / "workspace", os.O_RDONLY)
    for _ in range(25):
        os.mkdir("n" * 200, dir_fd=at)
        below = os.open("n" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    save(depot, "s/1-1", {name: tmp_path / name for name in ("workspace", "home")})
    assert read(tmp_path, depot, "s/1-1", tmp_path / "out").returncode == 0
    for name in ("workspace", "home"):
        assert manifest_of(tmp_path / "out" / name) == manifest_of(tmp_path / name)
    for folder in (tmp_path / "workspace", tmp_path / "out" / "workspace"):
        random_trees._remove(folder)  # what pytest cannot


def test_what_is_damaged_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    depot, work = depot_at(tmp_path), tmp_path / "work"
    work.mkdir()
    (work / "early").write_text("of the first")
    capture([Tree("w", work)], depot, "s/1-1")
    packs = (tmp_path / "blobs" / "packs" / "s").iterdir()
    early = min(packs, key=lambda path: path.stat().st_mtime_ns)  # contents come before their lists
    (work / "late").write_bytes(os.urandom(3000))
    capture([Tree("w", work)], depot, "s/1-2", parent="s/1-1")
    body = bytearray(early.read_bytes())
    body[30] ^= 1
    early.write_bytes(body)
    done = read(tmp_path, depot, "s/1-2", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr == "lost: w, b'early': 12 bytes from 0 on\n"
    assert (tmp_path / "out" / "w" / "late").read_bytes() == (work / "late").read_bytes()
    for pack in (tmp_path / "blobs" / "packs" / "s").iterdir():
        if pack != early:
            pack.unlink()
    gone = read(tmp_path, depot, "s/1-2", tmp_path / "gone")
    assert gone.returncode == 1
    assert "the list of files" in gone.stderr


def test_a_checkpoint_that_would_write_elsewhere_does_not(tmp_path: Path) -> None:
    depot = depot_at(tmp_path)
    (tmp_path / "outside").mkdir()
    through = [
        Folder(b"", 0o755, 0, (Entry(name=b"x", kind=LINK, target=os.fsencode(tmp_path / "outside")),)),
        Folder(b"x", 0o755, 0, (Entry(name=b"y", kind="f", mode=0o644),)),
    ]
    climbs = [Folder(b"", 0o755, 0, (Entry(name=b"../y", kind="f", mode=0o644),))]
    for n, folders in enumerate((through, climbs), 1):
        with Writing(depot) as packer:
            tree = tree_of("w", tmp_path, (0, 0), folders, packer)
            seal(depot, f"s/1-{n}", [tree], packer.finish())
        assert read(tmp_path, depot, f"s/1-{n}", tmp_path / f"out{n}").returncode == 1
        assert list((tmp_path / "outside").iterdir()) == []
        assert not (tmp_path / f"out{n}" / "y").exists()


def test_the_reader_stays_short_and_knows_nothing_of_bide() -> None:
    text = READER.read_text()
    assert len(text.splitlines()) <= 150
    assert set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)) - sys.stdlib_module_names == {
        "msgspec", "zstandard", "blake3", "cryptography",
    }  # fmt: skip


def test_the_wrong_keys_open_nothing(tmp_path: Path) -> None:
    depot = depot_at(tmp_path)
    (tmp_path / "work").mkdir()
    save(depot, "s/1-1", {"w": tmp_path / "work"})
    keys = depot.keyring.keys("s/1-1")
    (tmp_path / "keys.json").write_bytes(exported("s/1-1", keys).replace(b'"key":"', b'"key":"AAAA', 1))
    argv: list[str | Path] = [sys.executable, READER, tmp_path / "blobs", tmp_path / "keys.json", tmp_path / "out"]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 1
    assert not (tmp_path / "out").exists()


def test_who_calls_it_wrongly_is_told_how(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for words in ([], ["blobs", "keys.json"], ["blobs", "keys.json", str(tmp_path)]):
        argv = [sys.executable, second_reader.__file__, *words]
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr[:6], "Traceback" in ran.stderr) == (1, "usage:", False)
