"""What people would lose if a runner forgot at its death what nobody had been told, or believed half of it."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from bide.core import facts as f
from bide.core import limits
from bide.core.effects import Keep
from bide.core.kept import Kept, Left
from bide.core.refusals import Refused
from bide.core.session import Pending
from bide.core.spool import Spool
from bide.runner.layout import Layout
from bide.runner.spool import Spools
from tests.runner.shell_parts import SESSION

KEPT = Kept(
    place="here", closed=False, turn=1, turn_open=True, cut_short=False, untaken=(), interrupts=(), told=(), preamble=(),
    checkpoint=None, attempts=0, taken=(), unsaved=True, made={}, version="1", conversation="c",
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Layout(tmp_path, SESSION).create(0)
    return tmp_path


def kept(at: int, count: int = 1, first: int = 0, epoch: int = 1, text: str = "said", **more: object) -> Keep:
    facts = tuple(f.AssistantMessage(text=f"{text} {n}") for n in range(at, at + count))
    given = {"session": SESSION, "adopted": False, "telling": epoch, "kept": KEPT} | more
    return Keep(epoch=epoch, at=at, facts=facts, first=first, **given)  # type: ignore[arg-type]


def spools(root: Path, boot: str = "boot-2", kernel: str = "kernel-1") -> Spools:
    return Spools(root, boot, kernel)


def file(root: Path) -> Path:
    return root / ".spool" / SESSION


def found(root: Path, **more: str) -> Left | None:
    left = spools(root, **more).found()
    return left[0] if left else None


def texts(left: Left | None) -> list[str]:
    assert left is not None
    return [fact.text for fact in left.facts if isinstance(fact, f.AssistantMessage)]


def test_the_next_process_finds_all_that_nobody_had_acknowledged(root: Path) -> None:
    ours = spools(root, "boot-1")
    ours.keep(kept(0, 3))
    untaken = Pending(id="i", type="user.message", author="ann", seq=7, text="é\u2028")
    ours.keep(kept(3, 2, first=2, kept=replace(KEPT, untaken=(untaken,))))
    left = found(root)
    assert left is not None
    assert (left.session, left.epoch, left.of, left.boot, left.first) == (SESSION, 1, 1, "boot-1", 2)
    assert texts(left) == ["said 2", "said 3", "said 4"]
    assert left.kept.untaken == (untaken,)
    assert file(root).stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_not_wholly_written_costs_that_line_only(root: Path) -> None:
    ours = spools(root)
    ours.keep(kept(0))
    whole = file(root).stat().st_size
    ours.keep(kept(1))
    for size in range(file(root).stat().st_size - 1, whole, -7):
        with file(root).open("r+b") as torn:
            torn.truncate(size)
        later = spools(root)
        assert texts(later.found()[0]) == ["said 0"]
        later.keep(kept(1, text="again"))
        assert texts(found(root)) == ["said 0", "again 1"], "what comes after it must be readable"


def test_lines_that_cannot_be_read_are_not_believed_in_part(root: Path) -> None:
    ours = spools(root)
    for n in range(3):
        ours.keep(kept(n))
    raw = file(root).read_bytes()
    file(root).write_bytes(raw.replace(b"said 1", b"said\x00\xff", 1))
    assert found(root) is None
    assert not file(root).exists()


def test_a_long_life_costs_little_disk_and_comes_to_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.runner.spool.SPOOL_BYTES", 20_000)
    ours, folded, chance = spools(root, "boot-1"), Spool(SESSION), random.Random(3)
    n = first = 0
    for _ in range(1500):
        count = chance.randrange(3)
        first = chance.randrange(first, n + count + 1) if chance.random() < 0.3 else first
        one = kept(n, count, first, kept=replace(KEPT, turn=chance.randrange(5)))
        n += count
        ours.keep(one)
        folded.add(one, "boot-1")
        if chance.random() < 0.02:
            assert found(root) == folded.left()
    assert found(root) == folded.left()
    assert file(root).stat().st_size < 20_000 + limits.SPOOL_GROWTH * 20_000


def test_after_the_machine_itself_went_down_only_what_was_closed_in_order_is_believed(root: Path) -> None:
    ours = spools(root, "boot-1")
    ours.keep(kept(0))
    assert found(root, kernel="kernel-1") is not None
    ours.close()
    ours.keep(kept(1))  # nobody may count on this any more
    assert texts(found(root, kernel="kernel-2")) == ["said 0"]
    later = spools(root, kernel="kernel-2")
    later.found()
    later.keep(kept(1))
    assert texts(found(root, kernel="kernel-2")) == ["said 0", "said 1"]
    assert found(root, kernel="kernel-3") is None


def test_where_the_start_of_the_machine_has_no_name_nothing_is_believed_by_chance(root: Path) -> None:
    spools(root, kernel="").keep(kept(0))
    assert found(root, kernel="") is None


def test_a_spool_whose_folder_is_gone_is_forgotten_unless_only_the_last_word_is_left(root: Path) -> None:
    ours = spools(root)
    ours.keep(kept(0))
    Layout(root, SESSION).workspace.rmdir()
    assert found(root) is None
    spools(root).keep(kept(0, kept=replace(KEPT, closed=True, place="leaving")))
    assert texts(found(root)) == ["said 0"]


def test_a_lease_that_is_over_leaves_nothing_and_never_takes_a_newer_ones_along(root: Path) -> None:
    ours = spools(root)
    ours.keep(kept(0))
    ours.keep(kept(0, epoch=2))
    ours.drop(SESSION, 1)
    assert texts(found(root)) == ["said 0"]
    ours.drop(SESSION, 2)
    assert list((root / ".spool").iterdir()) == []


def test_what_half_an_adoption_left_is_whole(root: Path) -> None:
    spools(root, "boot-1").keep(kept(0, 3))
    second = spools(root, "boot-2")
    second.found()
    second.keep(kept(0, 1, first=1, epoch=2, adopted=True, telling=1, text="new"))
    left = found(root)
    assert left is not None
    assert (left.epoch, left.of, left.first, left.boot) == (2, 1, 1, "boot-2")
    assert texts(left) == ["said 1", "said 2"]


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow past so many bytes: the write that would is cut, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_costs_the_return_and_never_the_work_and_heals(root: Path) -> None:
    ours = spools(root)
    ours.keep(kept(0))
    with full_disk(file(root).stat().st_size + 10):
        ours.keep(kept(1))
        assert found(root) is None, "half of what was said would be taken for all of it"
        ours.keep(kept(2))
    ours.keep(kept(3, first=1))
    assert texts(found(root)) == ["said 1", "said 2", "said 3"]


def test_texts_that_utf8_cannot_carry_are_kept_as_well_as_they_can(root: Path) -> None:
    spools(root).keep(kept(0, kept=replace(KEPT, preamble=("half \udc80 a name",))))
    left = found(root)
    assert left is not None
    assert left.kept.preamble == ("half \ufffd a name",)


def test_no_session_can_name_a_file_outside(root: Path) -> None:
    with pytest.raises(Refused):
        spools(root).keep(kept(0, session="../escaped"))
    assert not (root / "escaped").exists()


def test_a_power_cut_never_brings_back_that_a_folder_is_as_it_was_closed_when_it_was_worked_on_since(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = spools(root, "boot-1")
    ours.keep(kept(0))
    ours.close()
    surely: list[bytes] = [file(root).read_bytes()]  # what the disk has for certain
    monkeypatch.setattr("os.fsync", lambda _: surely.append(file(root).read_bytes()))
    later = spools(root, kernel="kernel-2")
    assert later.found(), "it is taken up"
    later.keep(kept(1))
    later.keep(kept(2))
    assert len(surely) <= 3, "once is enough"
    file(root).write_bytes(surely[-1])
    assert found(root, kernel="kernel-3") is None
