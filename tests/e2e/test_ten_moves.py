"""What people would lose if a checkpoint held less than the folder, or more than half of one were taken for it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.folders import described, differing
from tests.e2e.model import said, word
from tests.e2e.stage import Session, Stage, until

POOL, ONE, TWO = "moves", "move-one", "move-two"
EDIT_BYTES, BOOKS_BYTES = 300_000, 20_000  # of one cycle: what it writes, and what its checkpoints may cost beside
CUT_BYTES = 48 << 20
FIRST = "head -c 3000000 /dev/urandom >base.bin; mkdir build; head -c 200000 /dev/urandom >build/out.o"
EDIT = """
set -e
echo %d >>README.md; head -c 100000 /dev/urandom >notes-%d.bin; head -c 200000 /dev/urandom >build/out.o
touch -d '2001-02-03 04:05:06.%09d' notes-%d.bin; rm -f gone-*; echo %d >gone-%d; git add notes-%d.bin
"""
WRITER = 'python3 -c \'import os\nwith open("lines.txt", "w") as out:\n for n in range(10**9):\n  '
WRITER += 'out.write(f"{n}\\n")\n  out.flush()\n  os.fsync(out.fileno())\' &'
ODD = r"""
set -e
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("odd.sock")'
mkfifo odd.pipe; ln -s loop loop; echo secret >shut; chmod 0 shut; echo plain >plain
"""


@pytest.fixture(scope="module")
def there(shared: Stage) -> Stage:
    shared.runners(ONE, TWO, pool=POOL)
    return shared


def begun(stage: Stage, *steps: dict[str, object], **settings: object) -> Session:
    """A session whose first turn is over and saved."""
    s = stage.session(said(word("task"), *steps), runtime="scripted", pool=POOL, **settings)
    s.first("turn.ended")
    assert all(event["data"]["ok"] for event in s.events("tool.result")), s.story()
    until(lambda: s.count("checkpoint.saved") >= 2, why=s.story)
    return s


def done(s: Session, script: str, within_s: float = 20.0) -> None:
    """One more turn that runs the script."""
    before = s.count("turn.ended")
    s.send(word("more"), {"run": script})
    until(lambda: s.count("turn.ended") > before, within_s, s.story)
    assert s.events("tool.result")[-1]["data"]["ok"], s.story()


def moved(stage: Stage, s: Session) -> tuple[Path, Path]:
    """Empties the runner that has it; its folder there, and where it goes on."""
    name = s.look()["runner_name"]
    stage.ok("POST", f"/v1/runners/{name}/drain", json={"deadline_s": 20})
    s.shown("parked")
    until(lambda: (stage.folder / name / ".warm" / s.id).exists())
    s.post({"type": "user.resume"})
    s.shown("waiting")
    assert stage.http.delete(f"/v1/runners/{name}/drain").status_code < 300
    other = s.look()["runner_name"]
    assert {name, other} == {ONE, TWO}
    return stage.folder / name / s.id, stage.folder / other / s.id


def stored(stage: Stage, s: Session) -> int:
    """Bytes of the session's objects."""
    return sum(path.stat().st_size for path in stage.blobs.rglob(f"*/{s.id}/*") if path.is_file())


def test_ten_moves_between_two_runners_change_nothing_and_store_the_edits_only(there: Stage) -> None:
    s = begun(there, {"run": FIRST})
    before = stored(there, s)
    assert before > 3_000_000
    for n in range(10):
        done(s, EDIT % ((n,) * 7))
        left, here = moved(there, s)
        assert differing(described(left), described(here)) == []
        assert s.events("environment.restored")[-1]["data"]["source"] == "checkpoint"
    readme = there.root_of(s) / "workspace" / "README.md"
    assert readme.read_text().split()[-10:] == [str(n) for n in range(10)]
    assert stored(there, s) - before < 10 * (EDIT_BYTES + BOOKS_BYTES), "what did not change is not stored again"
    assert not s.events("environment.rolled_back", "environment.lost", "checkpoint.failed")


@pytest.mark.parametrize("how", ["window", "command"])
def test_a_park_by_the_window_holds_as_much_as_one_by_command(there: Stage, how: str) -> None:
    """The writer works on after its turn, until the park ends it."""
    s = begun(there, {"start": WRITER}, online_window_s=1 if how == "window" else 900)
    if how == "command":
        s.post({"type": "user.park"})
    reason = s.shown("parked")["reason"]
    assert ("longer than 1 s" in reason) == (how == "window")
    name = s.events("session.leased")[-1]["data"]["runner_name"]
    until(lambda: (there.folder / name / ".warm" / s.id).exists())
    lines = (there.folder / name / s.id / "workspace" / "lines.txt").read_bytes()
    assert lines.count(b"\n") > 10
    there.evict(s)
    s.post({"type": "user.resume"})
    s.shown("waiting")
    assert (there.root_of(s) / "workspace" / "lines.txt").read_bytes() == lines
    s.post({"type": "user.cancel"})


def test_what_cannot_be_kept_is_listed_with_its_reason_before_and_after(there: Stage) -> None:
    s = begun(there, {"run": ODD})
    saved = s.events("checkpoint.saved")[-1]["data"]["checkpoint"]
    assert saved["seconds"] < 10
    said_before = [line for line in saved["not_kept"] if line.startswith("workspace/")]
    shut = [line for line in said_before if line.startswith("workspace/shut: ")]
    assert [line for line in said_before if line not in shut] == [
        "workspace/odd.pipe: a FIFO only lives while processes use it",
        "workspace/odd.sock: a socket only lives while its process does",
    ]
    _, here = moved(there, s)
    assert set(said_before) <= set(s.events("environment.restored")[-1]["data"]["not_kept"])
    assert sorted(path.name for path in (here / "workspace").glob("[!.]*")) == sorted(
        ["README.md", "run.sh", "loop", "plain", *([] if shut else ["shut"])]
    )
    assert (here / "workspace" / "loop").readlink() == Path("loop")
    if not shut:
        assert (here / "workspace" / "shut").stat().st_mode & 0o777 == 0


# -- an upload that is cut --------------------------------------------------------------------------------------------


def workers(runner: int) -> list[int]:
    """The processes that save or bring back for this runner."""
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1])
            if parent == runner and b"bide.snapshots.worker" in Path(entry.path, "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def cut(stage: Stage, s: Session, share: float) -> bool:
    """A turn whose checkpoint is killed once so much of it is uploaded; whether that came in time."""
    runner = stage.parts[s.look()["runner_name"]].pid
    until(lambda: not workers(runner))
    folder, saves, fails = stage.blobs, s.count("checkpoint.saved"), s.count("checkpoint.failed")
    before = uploaded(folder)
    s.send(word("more"), {"run": f"head -c {CUT_BYTES} /dev/urandom >large.bin"})
    end = time.monotonic() + 60
    while uploaded(folder) - before < CUT_BYTES * share:
        assert time.monotonic() < end, s.story()
    for pid in workers(runner):
        os.killpg(pid, signal.SIGKILL)
    until(lambda: s.count("checkpoint.saved") > saves or s.count("checkpoint.failed") > fails, why=s.story)
    return s.count("checkpoint.saved") == saves


def uploaded(folder: Path) -> int:
    """Bytes in the store, those on their way included."""
    found = 0
    with contextlib.suppress(FileNotFoundError):
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                found += path.stat().st_size if path.is_file() else 0
    return found


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_an_upload_that_is_cut_is_never_offered_and_the_resume_says_what_it_went_back_to(
    shared: Stage, share: float
) -> None:
    pool = f"cut-{share:g}"
    (doomed,) = shared.runners(f"{pool}-one", pool=pool)
    s = shared.session(
        said(word("task"), {"run": "echo kept >kept.txt"}), runtime="scripted", pool=pool, recovery_window_s=0
    )
    s.first("turn.ended")
    until(lambda: s.count("checkpoint.saved") >= 2, why=s.story)
    until(lambda: cut(shared, s, share), 120, s.story)
    doomed.kill()
    good = s.events("checkpoint.saved")[-1]["data"]["checkpoint"]
    assert s.events("checkpoint.failed")[-1]["data"]["reason"].startswith("The workspace could not be saved: ")
    offered = shared.ok("GET", f"{s.path}/checkpoints")["items"]
    assert [one["n"] for one in offered][-1] == s.look()["checkpoint"]["n"] == good["n"]
    shared.runners(f"{pool}-two", pool=pool)
    restored = s.first("environment.restored", 60, after=s.events("checkpoint.failed")[-1]["seq"])
    assert restored["data"]["checkpoint"] == good["n"]
    (back,) = s.events("environment.rolled_back")
    assert (back["data"]["checkpoint"], back["seq"] < restored["seq"]) == (good["n"], True)
    assert back["data"]["lost"]
    assert (shared.root_of(s) / "workspace" / "kept.txt").read_text() == "kept\n"
    s.send(word("on"), {"say": "on it goes"})
    s.first("assistant.message", text="on it goes")
    s.whole()
