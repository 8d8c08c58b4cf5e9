"""The way out that every system has: a checkpoint as a tar archive, exact, whoever unpacks it."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from bide.snapshots.compare import Described, manifest_of
from bide.snapshots.depot import Depot
from bide.snapshots.left_out import Tail
from bide.snapshots.losses import Damaged, Hostile, Lost
from bide.snapshots.manifest import HASH_SIZE, LINK, Entry, Folder
from bide.snapshots.reader import NotThere, Reader
from bide.snapshots.root import open_root
from bide.snapshots.tar import tar
from tests.snapshots import random_trees
from tests.snapshots.depots import depot_at
from tests.snapshots.random_trees import FolderSpec, room
from tests.snapshots.tiny import Writing, save, seal, tree_of

GNU = ["tar", "--warning=no-timestamp", "--xattrs", "--xattrs-include=user.*", "--numeric-owner", "-xp"]


def archive(depot: Depot, path: bytes = b"", root: str = "s/1-1") -> bytes:
    return b"".join(tar(Reader(open_root(root, depot)), "w", path))


def unpack(content: bytes, target: Path) -> Path:
    """With GNU tar, which must have nothing to say about it."""
    target.mkdir()
    done = subprocess.run([*GNU, "-C", target], input=content, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return target


def plain(found: dict[bytes, Described]) -> dict[bytes, Described]:
    """Without what Python's tarfile leaves out: attributes, links' times, and what a float cannot hold of the others."""
    return {path: replace(one, xattrs=(), mtime_ns=0) for path, one in found.items()}


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_trees.trees)
def test_any_folder_comes_out_of_its_archive_bit_for_bit(spec: FolderSpec) -> None:
    with room() as here:
        work, depot = here / "work", depot_at(here)
        work.mkdir()
        random_trees.build(work, spec)
        wanted = manifest_of(work)
        save(depot, "s/1-1", {"w": work})
        content = archive(depot)
        assert len(content) % 10240 == 0
        assert manifest_of(unpack(content, here / "gnu") / "w") == wanted
        with tarfile.open(fileobj=io.BytesIO(content), encoding="utf-8", errors="surrogateescape") as opened:
            opened.extractall(here / "python", filter="fully_trusted")
        found = manifest_of(here / "python" / "w")
        assert plain(found) == plain(wanted)
        for path, one in wanted.items():
            assert one.type == "link" or abs(found[path].mtime_ns - one.mtime_ns) < 2000


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "sub" / "in").mkdir(parents=True)
    (folder / "one").write_text("content")
    os.link(folder / "one", folder / "sub" / "twin")
    os.link(folder / "one", folder / "sub" / "twin too")
    (folder / "sub" / "in" / "deep").write_text("deep")
    (folder / "sub-x").write_text("not in sub")
    (folder / "holes").touch()
    os.truncate(folder / "holes", 20 * 2**30)
    return folder


def test_a_part_of_it_holds_whole_files_even_where_their_other_names_are_outside(work: Path, tmp_path: Path) -> None:
    depot = depot_at(tmp_path)
    save(depot, "s/1-1", {"w": work})
    out = unpack(archive(depot, b"sub"), tmp_path / "out")
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*")) == [
        "sub", "sub/in", "sub/in/deep", "sub/twin", "sub/twin too",
    ]  # fmt: skip
    assert (out / "sub" / "twin").read_text() == "content"
    assert (out / "sub" / "twin").samefile(out / "sub" / "twin too")
    alone = unpack(archive(depot, b"sub/twin"), tmp_path / "alone")
    assert (alone / "twin").read_text() == "content"
    with pytest.raises(NotThere):
        archive(depot, b"sub/nothing")


def test_twenty_gigabytes_of_hole_are_a_short_archive(work: Path, tmp_path: Path) -> None:
    depot = depot_at(tmp_path)
    save(depot, "s/1-1", {"w": work})
    content = archive(depot)
    assert len(content) < 50_000
    holes = (unpack(content, tmp_path / "out") / "w" / "holes").stat()
    assert (holes.st_size, holes.st_blocks) == (20 * 2**30, 0)


def test_numbers_that_the_old_header_cannot_hold_stand_in_the_new_one(tmp_path: Path) -> None:
    depot = depot_at(tmp_path)
    entry = Entry(name=b"f", kind="f", mode=0o644, mtime_ns=2**33 * 10**9 + 1, uid=3_000_000, gid=4_000_000_000)
    with Writing(depot) as packer:
        tree = tree_of("w", tmp_path, (0, 0), [Folder(b"", 0o755, -1, (entry,))], packer)
        seal(depot, "s/1-1", [tree], packer.finish())
    with tarfile.open(fileobj=io.BytesIO(archive(depot))) as opened:
        top, file = opened.getmembers()
    assert (file.uid, file.gid) == (3_000_000, 4_000_000_000)
    assert file.pax_headers["mtime"] == "8589934592.000000001"
    assert top.pax_headers["mtime"] == "-0.000000001"


def test_nothing_is_given_out_of_a_checkpoint_that_lies_or_has_lost_its_lists(work: Path, tmp_path: Path) -> None:
    depot = depot_at(tmp_path)
    folders = [
        Folder(b"", 0o755, 0, (Entry(name=b"x", kind=LINK, target=b"/tmp"),)),
        Folder(b"x", 0o755, 0, (Entry(name=b"y", kind="f", mode=0o644),)),
    ]
    with Writing(depot) as packer:
        seal(depot, "s/1-1", [tree_of("w", tmp_path, (0, 0), folders, packer)], packer.finish())
    with pytest.raises(Hostile):
        tar(Reader(open_root("s/1-1", depot)), "w")
    save(depot, "s/1-2", {"w": work})
    for pack in list(depot.blobs.list("packs/")):
        depot.blobs.delete(pack)
    with pytest.raises(Damaged):
        tar(Reader(open_root("s/1-2", depot)), "w")


def broken(depot: Depot, tmp_path: Path) -> Path:
    """Saves a folder of four files, of which `b` has a second name, and spoils the contents of that."""
    work, blobs = tmp_path / "torn", tmp_path / "blobs"
    (work / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (work / name).write_bytes(os.urandom(8_000_000 if name == "b" else 2_000_000))
    os.link(work / "b", work / "sub" / "twin")
    (work / "z").write_text("small\n")
    save(depot, "s/1-1", {"w": work})
    reader = Reader(open_root("s/1-1", depot))
    ids = reader.entry("w", b"b").ids
    middle = len(ids) // HASH_SIZE // 2 * HASH_SIZE
    (load,) = reader.root.index.loads({ids[middle : middle + HASH_SIZE]})
    file = blobs / load.pack.ref.key
    body = bytearray(file.read_bytes())
    body[load.row.offset + 5] ^= 1
    file.write_bytes(body)
    return work


def test_a_damaged_checkpoint_still_gives_all_that_is_whole_and_says_what_it_has_not(
    depot: Depot, tmp_path: Path
) -> None:
    work = broken(depot, tmp_path)
    with pytest.raises(Damaged):
        archive(depot)
    content = b"".join(tar(Reader(open_root("s/1-1", depot)), "w", skip_damaged=True))
    there = unpack(content, tmp_path / "out")
    assert sorted(path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()) == [
        "bide-lost.txt", "w/a", "w/sub/c", "w/z",
    ]  # fmt: skip
    assert (there / "w" / "a").read_bytes() == (work / "a").read_bytes()
    tail = Tail()
    for at in range(0, len(content), 1000):
        tail.take(content[at : at + 1000])
    assert tail.lines() == (there / "bide-lost.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in tail.lines()] == ["w/b", "w/sub/twin"]
    part = b"".join(tar(Reader(open_root("s/1-1", depot)), "w", b"sub", skip_damaged=True))
    assert [path.name for path in unpack(part, tmp_path / "part").rglob("*") if path.is_file()] == [
        "bide-lost.txt",
        "c",
    ]


def test_of_a_whole_checkpoint_it_is_the_same_archive(work: Path, depot: Depot) -> None:
    (work / "a").write_text("a\n")
    save(depot, "s/1-1", {"w": work})
    assert b"".join(tar(Reader(open_root("s/1-1", depot)), "w", skip_damaged=True)) == archive(depot)


def test_of_a_checkpoint_without_one_of_its_lists_the_other_folders_come_out(
    work: Path, depot: Depot, tmp_path: Path
) -> None:
    for n in range(300):
        (work / f"d{n}").mkdir()
        (work / f"d{n}" / "f").write_text(f"{n}\n")
    save(depot, "s/1-1", {"w": work})
    reader = Reader(open_root("s/1-1", depot))
    refs = reader.tree("w").segments
    real, lost = Reader.segment, refs[len(refs) // 2].first
    assert len(refs) > 2

    class Lame(Reader):
        def segment(self, tree: str, at: int) -> list[Folder]:
            if refs[at].first == lost:
                raise Damaged([Lost(what=f"the list of the folders from w/{lost.decode()} on", bytes=0, reason="gone")])
            return real(self, tree, at)

    there = unpack(b"".join(tar(Lame(open_root("s/1-1", depot)), "w", skip_damaged=True)), tmp_path / "out")
    assert (there / "bide-lost.txt").read_text() == f"the list of the folders from w/{lost.decode()} on: gone\n"
    assert not (there / "w" / lost.decode()).exists()
    assert (there / "w" / "d0" / "f").read_text() == "0\n"
