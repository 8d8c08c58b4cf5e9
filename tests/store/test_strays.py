"""What lies in a blob store and is of no use is told apart: what may be an upload is no damage, and what goes says when."""

from __future__ import annotations

import pytest

from bide.core import commands as c
from bide.core.keyring import base_family
from bide.core.limits import BASE_SETTLED_S
from bide.core.session import Session
from bide.store import collecting, forks, keyrows
from bide.store.strays import Stray, spare, strays
from tests.store.story import do, uid
from tests.store.test_collecting import PATIENCE, Depot, Made, depot, made

__all__ = ["depot", "made"]
BASE = base_family("p")


def fates(depot: Depot) -> dict[str, str]:
    """What is found of everything that lies in the store."""
    return {one.object: one.fate for one in found(depot)}


def found(depot: Depot) -> list[Stray]:
    homes: dict[str, str] = {}
    for family in collecting.families(depot.engine, "", 100):
        homes |= spare(depot.engine, family).homes
    return strays(depot.engine, sorted(depot.objects), homes, PATIENCE)


def uploads(depot: Depot, session: str, family: str = "") -> str:
    """A capture begins, and its first pack arrives."""
    family = family or session
    with depot.engine.alone():
        keyrows.begin(depot.engine, family, session)
    depot.objects.add(key := f"packs/{family}/{depot.pack()}")
    return key


def fork(depot: Depot, s: Session, name: str) -> Session:
    wanted = c.Fork(id=uid(name), author="ada", session=uid("session", name))
    with depot.engine.alone():
        held = forks.hold(depot.engine, s.id, wanted)
    done = do(depot.engine, s.id, held)
    assert done.fork is not None
    return done.fork.session


def test_what_belongs_to_kept_checkpoints_is_no_stray_whoever_keeps_them(depot: Depot) -> None:
    one = depot.ended(depot.save(depot.begun(1), 1))
    second = fork(depot, one, "second")
    third = fork(depot, second, "third")
    with depot.engine.alone():
        collecting.erase(depot.engine, [one.id])
        collecting.erase(depot.engine, [second.id])
    assert depot.engine.session(third.id) is not None
    assert fates(depot) == {}


def test_a_pack_of_a_session_at_work_may_be_an_upload_and_of_one_at_rest_it_was_cut_off(depot: Depot) -> None:
    one = depot.save(depot.begun(1), 1)
    cut = uploads(depot, one.id)
    depot.objects.add(root := f"roots/{one.id}/1-9")
    assert fates(depot) == {cut: "underway", root: "underway"}
    one = depot.ended(one)
    assert {one.object: (one.fate, one.due - depot.clock.time) for one in found(depot)} == dict.fromkeys(
        (cut, root), ("unfinished", PATIENCE.orphan_s + PATIENCE.condemned_s)
    )
    depot.clock.time += PATIENCE.orphan_s + 1
    assert all(one.due - depot.clock.time == PATIENCE.condemned_s for one in found(depot)), "the next round finds it"
    depot.round()
    assert {one.object: (one.fate, one.due - depot.clock.time) for one in found(depot)} == dict.fromkeys(
        (cut, root), ("condemned", PATIENCE.condemned_s)
    )
    depot.settle()
    assert fates(depot) == {}
    assert cut not in depot.objects


def test_the_upload_of_a_fork_is_its_own_familys(depot: Depot) -> None:
    one = depot.ended(depot.save(depot.begun(1), 1))
    second = fork(depot, one, "second")
    cut = uploads(depot, second.id, one.id)
    depot.objects.add(root := f"roots/{second.id}/1-2")
    assert fates(depot) == {cut: "unfinished", root: "unfinished"}
    with depot.engine.alone():
        collecting.erase(depot.engine, [second.id])
    assert fates(depot)[cut] == "unfinished", "the erased is looked after like any other"
    depot.settle()
    assert fates(depot) == {}


def test_what_nothing_in_the_database_is_about_is_left_alone(depot: Depot) -> None:
    depot.objects |= {"packs/another-database/0", "roots/another-database/1-1", "roots/odd", "packs/odd"}
    assert set(fates(depot).values()) == {"unknown"}
    depot.settle()
    assert len(depot.objects) == 4


def test_a_key_that_no_kept_checkpoint_needs_says_whether_somebody_may_still_need_it(depot: Depot) -> None:
    one = depot.save(depot.begun(1), 1)
    shared = depot.pack()
    depot.seal(one.id, f"{one.id}/1-2", new=shared)
    told = {one.object: one.fate for one in spare(depot.engine, one.id).strays}
    assert told == {f"roots/{one.id}/1-2": "underway", f"packs/{one.id}/{shared}": "underway"}
    depot.ended(one)
    told = {one.object: one.fate for one in spare(depot.engine, one.id).strays}
    assert told == {f"roots/{one.id}/1-2": "spare", f"packs/{one.id}/{shared}": "spare"}
    depot.settle()
    assert spare(depot.engine, one.id).strays == ()


@pytest.mark.parametrize("at_work", [True, False])
def test_the_base_of_a_project_and_an_upload_of_the_next_are_told_apart(made: Made, at_work: bool) -> None:
    depot = made()
    one = depot.begun(1)
    with depot.engine.alone():
        keyrows.open_domain(depot.engine, "p", keyrows.Domain(key=b"", chunks=b""))
    for root in (f"{BASE}/0-1", f"{BASE}/0-2"):
        depot.seal(one.id, root, family=BASE)
        with depot.engine.alone():
            keyrows.publish(depot.engine, "p", root)
    cut = uploads(depot, one.id, BASE)
    if not at_work:
        depot.ended(one)
    assert fates(depot) == {cut: "underway" if at_work else "unfinished"}
    assert spare(depot.engine, BASE).strays == (), "one that was replaced a moment ago may be built upon"
    depot.clock.time += BASE_SETTLED_S
    assert {one.object for one in spare(depot.engine, BASE).strays if one.object.startswith("roots/")} == {
        f"roots/{BASE}/0-1"
    }
