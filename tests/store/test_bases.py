"""A base is offered by one runner and relied upon by all sessions: it is read before, by one server at a time, or it goes."""

from __future__ import annotations

from bide.core.keyring import Seal
from bide.core.limits import BASE_CLAIM_S, BASE_SETTLED_S
from bide.core.session import Session
from bide.store import bases, collecting, keyrows
from tests.store.test_collecting import BASE, Depot, depot, made
from tests.store.test_collecting import bases as bases_of

__all__ = ["depot", "made"]


def test_what_one_session_left_of_a_base_is_not_deleted_under_another_that_makes_one_now(depot: Depot) -> None:
    one, two = depot.begun(1), depot.begun(2)
    for s in (one, two):
        with depot.engine.alone():
            keyrows.begin(depot.engine, BASE, s.id)
    running, left = (f"packs/{BASE}/{depot.pack()}" for _ in range(2))
    depot.objects |= {running, left}
    depot.ended(one)
    depot.settle()
    assert running in depot.objects
    depot.ended(two)
    depot.settle()
    assert depot.objects == set()


def offered(depot: Depot, s: Session, n: int, *uses: str, new: str = "") -> str:
    root = f"{BASE}/0-{n}"
    depot.seal(s.id, root, family=BASE, uses=uses, new=new)
    with depot.engine.alone():
        keyrows.open_domain(depot.engine, "p", keyrows.Domain(key=b"", chunks=b""))
        bases.offer(depot.engine, "p", s.id, "r", root)
    return root


def taken(depot: Depot) -> bases.Offered:
    with depot.engine.alone():
        found = bases.take(depot.engine)
    assert found is not None
    return found[1]


def test_an_offered_base_is_read_by_one_server_at_a_time_and_by_another_when_that_one_died(depot: Depot) -> None:
    one = depot.begun(1)
    root = offered(depot, one, 1)
    depot.clock.time += BASE_SETTLED_S
    depot.settle()
    assert bases_of(depot) == {"0-1"}, "it waits as long as it takes"
    first = taken(depot)
    with depot.engine.alone():
        assert bases.take(depot.engine) is None
    depot.clock.time += BASE_CLAIM_S
    second = taken(depot)
    assert (first.tries, second.tries) == (1, 2), "it may be what the servers die of"
    with depot.engine.alone():
        assert not bases.accept(depot.engine, "p", first), "it is not his any more"
        assert not bases.refuse(depot.engine, "p", first)
        bases.give_back(depot.engine, "p", second, depot.clock.time, counts=False)
        found = bases.take(depot.engine)
        assert found is not None
        assert found[1].tries == 2, "an outage is no fault of it"
        assert bases.accept(depot.engine, "p", found[1])
        assert bases.base_for(depot.engine, "p", "any session", "any runner") == root


def test_a_bad_base_goes_and_nobody_saves_upon_it_once_more(depot: Depot) -> None:
    one, of_base = depot.begun(1), depot.pack()
    root = offered(depot, one, 1, new=of_base)
    one = depot.save(one, 1, uses=(of_base,))  # its own, and on the machine that made it
    claimed = taken(depot)
    with depot.engine.alone():
        assert bases.base_for(depot.engine, "p", one.id, "r") == root
        assert bases.base_for(depot.engine, "p", one.id, "another") == ""
        assert bases.refuse(depot.engine, "p", claimed)
        assert bases.base_for(depot.engine, "p", one.id, "r") == ""
        upon = Seal(root=f"{one.id}/1-2", key=b"k", uses=(of_base,))
        assert keyrows.seal(depot.engine, one.id, one.id, BASE, upon) == (of_base,)
    depot.clock.time += BASE_SETTLED_S
    depot.settle()
    assert depot.opens(one.id, f"{one.id}/1-1"), "what was saved stays as it is"
    one = depot.ended(one)
    with depot.engine.alone():
        collecting.erase(depot.engine, [one.id])
    depot.settle()
    assert depot.objects == set()
