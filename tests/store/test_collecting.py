"""Collection may die between any two of its steps: what is kept can always be opened, and in the end nothing else is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core.collection import PackRow, RootRow, place_of
from bide.core.keyring import NewPack, Seal, base_family
from bide.core.limits import BASE_SETTLED_S, PIN_S
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.store import collecting, forks, keyrows, rounds
from bide.store.base import Engine
from bide.store.memory import MemoryStore
from bide.store.sqlite import SqliteStore
from tests.store.story import Clock, create, do, grant, report, uid

PATIENCE = rounds.Patience(condemned_s=60, orphan_s=60, erased_s=1e6, families=2, objects=3, facts=2)
BASE = base_family("p")


class Depot:
    """A store's rows and the objects that they are of; what a runner and the servers do with both."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine, self.clock = engine, clock
        self.objects: set[str] = set()
        self.places = rounds.Places()
        self.made = 0
        self.failed: set[str] | None = None  # what the rounds said that they could not do; None: they have to do all

    def pack(self) -> str:
        self.made += 1
        return f"{self.made:032x}"

    def seal(self, session: str, root: str, *, new: str = "", uses: tuple[str, ...] = (), family: str = "") -> None:
        family, new = family or session, new or self.pack()
        wrapped = Seal(root=root, key=b"k", new=(NewPack(id=new, size=1, hash=b"h", key=b"k"),), uses=uses)
        with self.engine.alone():
            keyrows.begin(self.engine, family, session)
            self.objects.add(f"packs/{family}/{new}")
            assert keyrows.seal(self.engine, session, family, BASE, wrapped) == ()
        self.objects.add(f"roots/{root}")

    def save(self, s: Session, n: int, **more: object) -> Session:
        """One more checkpoint, saved and told."""
        self.seal(s.id, f"{s.id}/{s.epoch}-{n}", **more)  # type: ignore[arg-type]
        saved = f.Checkpoint(id=uid(s.id, n), n=n, epoch=s.epoch, root="", turn=1, at_n=s.n)
        return do(self.engine, s.id, report(s, f.CheckpointSaved(checkpoint=saved))).session

    def begun(self, n: int) -> Session:
        s = do(self.engine, uid("session", n), replace(create(n), limits=create(n).limits | {"checkpoints_kept": 2}))
        do(self.engine, s.session.id, grant())
        return do(self.engine, s.session.id, report(*self._restored(s.session.id))).session

    def _restored(self, session: str) -> tuple[Session, f.EnvironmentRestored]:
        s = self.engine.session(session)
        assert s is not None
        return s, f.EnvironmentRestored(source="fresh")

    def ended(self, s: Session) -> Session:
        return do(self.engine, s.id, report(s, f.Ended(outcome="failed"))).session

    def round(self, steps_max: int = 10**6) -> int:
        """One round, or its first steps: then the server dies, and forgets where it was. How many steps there were."""
        steps, answer = rounds.collecting_round(self.places, PATIENCE), None
        error: Exception | None = None
        for number in range(steps_max):
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration:
                return number
            answer = error = None
            try:
                answer = self._answer(step)
            except msgspec.MsgspecError as raised:
                error = raised
        self.places = rounds.Places()
        return steps_max

    def _answer(self, step: rounds.Step) -> object:
        match step:
            case rounds.Look(call=call):
                with self.engine.snapshot():
                    return call(self.engine)
            case rounds.Change(call=call):
                with self.engine.alone():
                    return call(self.engine)
            case rounds.Listed(prefixes=prefixes):
                return sorted(key for key in self.objects if key.startswith(prefixes))
            case rounds.Delete(object=key):
                there = key in self.objects
                self.objects.discard(key)
                return there
            case rounds.Wipe():
                return self.engine.wipe()
            case rounds.Failed(what=what, error=error):
                if self.failed is None:
                    raise error
                self.failed.add(what)
                return None

    def settle(self) -> None:
        for _ in range(40):
            self.clock.time += 30
            self.round()

    def opens(self, session: str, root: str, family: str = "") -> bool:
        found = keyrows.opened(self.engine, family or session, BASE, root)
        if found is None or f"roots/{root}" not in self.objects:
            return False
        row, packs = found
        return all(pack in packs and f"packs/{packs[pack].family}/{pack}" in self.objects for pack in row.names)


Made = Callable[[], Depot]


@pytest.fixture(params=["memory", "sqlite"])
def made(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Made]:
    """Makes a depot with nothing in it."""
    engines: list[Engine] = []

    def make() -> Depot:
        engines.append(MemoryStore(clock) if request.param == "memory" else SqliteStore(":memory:", clock))
        return Depot(engines[-1], clock)

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def depot(made: Made) -> Depot:
    return made()


def busy(depot: Depot) -> tuple[Session, Session, Session]:
    """A session with more checkpoints than are kept, one with a fork and an unfinished upload, and the fork."""
    one = depot.begun(1)
    shared = depot.pack()
    one = depot.save(one, 1, new=shared)
    for n in range(2, 5):
        one = depot.save(one, n, uses=(shared,))
    two = depot.save(depot.begun(2), 1)
    depot.objects |= {f"packs/{two.id}/{depot.pack()}", f"roots/{two.id}/1-9"}
    two = depot.ended(two)
    wanted = c.Fork(id=uid("fork"), author="ada", session=uid("session", 3), title="", text="", checkpoint=0)
    with depot.engine.alone():
        held = forks.hold(depot.engine, two.id, wanted)
    done = do(depot.engine, two.id, held)
    assert done.fork is not None
    return one, two, done.fork.session


def test_dead_between_any_two_steps_it_takes_nothing_that_is_kept_and_leaves_nothing_else(made: Made) -> None:
    for dead_at in range(1, 30):
        depot = made()
        one, two, fork = busy(depot)
        kept = [(one.id, f"{one.id}/1-{n}", one.id) for n in (1, 3, 4)]
        kept += [(two.id, f"{two.id}/1-1", two.id), (fork.id, f"{two.id}/1-1", two.id)]
        for _ in range(4):  # at the same place each time, with other work to do
            depot.round(dead_at)
            depot.clock.time += 61
            assert all(depot.opens(*each) for each in kept), dead_at
        depot.settle()
        assert all(depot.opens(*each) for each in kept), dead_at
        roots = {f"roots/{root}" for _, root, _ in kept}
        packs = {f"packs/{key}" for key in depot.engine.keys(keyrows.PACK)}
        assert depot.objects == roots | packs, dead_at
        assert depot.engine.keys(keyrows.CONDEMNED) == [], dead_at


def test_a_family_that_cannot_be_judged_keeps_no_other_from_being_collected_or_erased(depot: Depot) -> None:
    """Else the store grows for ever, and nobody sees why."""
    s = depot.save(depot.begun(1), 1)
    for family in ("0", "z"):
        depot.engine.put(keyrows.ROOT, f"{family}/x/1-1", b"what no release wrote")
    hostile = f"{s.id}/1-{'9' * 5000}"
    with depot.engine.alone():
        keyrows.write(depot.engine, keyrows.ROOT, f"{s.id}/{hostile}", RootRow(key=b"k", packs=b"", at=0.0))
    assert place_of(hostile) == (-1, -1), "the name of no capture, and no error"
    depot.failed = set()
    depot.settle()
    assert depot.failed == {"family 0", "family z"}, "each is told, and the rounds go on behind it"
    assert depot.engine.get(keyrows.ROOT, f"{s.id}/{hostile}") is None, "nobody can want it"
    assert depot.opens(s.id, f"{s.id}/1-1")
    depot.ended(s)
    with depot.engine.alone():
        assert collecting.erase(depot.engine, [s.id]) == ()
    depot.settle()
    assert not depot.objects


def test_an_erased_sessions_keys_are_gone_at_once_and_its_objects_wherever_it_dies(made: Made) -> None:
    for dead_at in range(1, 30):
        depot = made()
        one, two, fork = busy(depot)
        one = depot.ended(one)
        with depot.engine.alone():
            assert collecting.erase(depot.engine, [one.id]) == ()
        assert not keyrows.rows(depot.engine, keyrows.PACK, one.id, PackRow)
        with depot.engine.alone():
            assert collecting.erase(depot.engine, [two.id]) == (fork.id,)
        for _ in range(4):
            depot.round(dead_at)
            depot.clock.time += 61
        depot.settle()
        assert depot.opens(fork.id, f"{two.id}/1-1", two.id), "the fork begins with it"
        assert not [key for key in depot.objects if one.id in key], dead_at
        assert not depot.engine.events(one.id, 0, 10)
        assert not depot.engine.keys(keyrows.DOOMED)
        with depot.engine.alone():
            assert collecting.erase(depot.engine, [fork.id]) == ()
        depot.settle()
        assert depot.objects == set(), dead_at
        kinds = (keyrows.ROOT, keyrows.PACK, keyrows.PIN, keyrows.CONDEMNED, keyrows.CAPTURE)
        assert [key for kind in kinds for key in depot.engine.keys(kind)] == [], dead_at


def test_what_a_fork_began_with_outlives_the_keeping_of_the_session_that_it_came_from(depot: Depot) -> None:
    _, two, fork = busy(depot)
    assert do(depot.engine, fork.id, c.Extend(id=uid("keep"), author="ada", until=two.expires_at + 1e6)).envelopes
    depot.clock.time = two.expires_at
    for _ in range(5):  # warnings are given late, and their notice is kept
        for session in (two.id, fork.id):
            do(depot.engine, session, c.Wake())
        depot.clock.time += 86400
    expired, kept = depot.engine.session(two.id), depot.engine.session(fork.id)
    assert expired is not None
    assert kept is not None
    assert (expired.environment.state, kept.environment.state) == ("expired", "suspended")
    depot.settle()
    assert depot.opens(fork.id, f"{two.id}/1-1", two.id)
    with depot.engine.alone():
        assert collecting.erase(depot.engine, [two.id]) == (fork.id,), (
            "of what is expired, too, it is said who holds it"
        )
        assert collecting.erase(depot.engine, [fork.id]) == ()
    depot.settle()
    assert not [key for key in depot.objects if two.id in key]


def test_a_fork_that_has_not_come_to_be_is_not_named_as_one_that_holds_anything(depot: Depot) -> None:
    one = depot.ended(depot.save(depot.begun(1), 1))
    with depot.engine.alone():
        keyrows.pin(depot.engine, one.id, f"{one.id}/1-1", uid("nobody"))
        assert collecting.erase(depot.engine, [one.id]) == ()
    depot.clock.time += PIN_S
    depot.settle()
    assert depot.objects == set()


def test_an_object_that_comes_after_it_was_condemned_is_deleted_all_the_same(depot: Depot) -> None:
    one, *_ = busy(depot)
    late = f"roots/{one.id}/1-2"
    while late in depot.objects:
        depot.round()
        depot.clock.time += 20
    depot.objects.add(late)
    depot.settle()
    assert late not in depot.objects


def test_a_capture_that_names_a_condemned_pack_is_told_so_and_seals_nothing(depot: Depot) -> None:
    one = depot.save(depot.begun(1), 1)
    first = depot.pack()
    one = depot.save(one, 2, new=first)
    for n in (3, 4):
        one = depot.save(one, n)
    depot.round()
    wanted = Seal(root=f"{one.id}/1-5", key=b"k", uses=(first,))
    with depot.engine.alone():
        assert keyrows.seal(depot.engine, one.id, one.id, BASE, wanted) == (first,)
    again = replace(wanted, uses=(), new=(NewPack(id=first, size=1, hash=b"h", key=b"k"),))
    with depot.engine.alone():
        assert keyrows.seal(depot.engine, one.id, one.id, BASE, again) == (first,), "its object is about to go"
    with depot.engine.alone(), pytest.raises(keyrows.Taken):
        keyrows.seal(depot.engine, one.id, one.id, BASE, Seal(root=f"{one.id}/1-1", key=b"other"))


def test_a_root_that_was_sealed_and_may_still_be_told_stays_until_it_cannot_be(depot: Depot) -> None:
    one = depot.save(depot.begun(1), 1)
    untold = f"{one.id}/1-2"
    depot.seal(one.id, untold)
    depot.settle()
    assert depot.opens(one.id, untold), "the word of it is on its way"
    depot.ended(one)
    depot.settle()
    assert depot.objects == {f"roots/{one.id}/1-1", *(f"packs/{key}" for key in depot.engine.keys(keyrows.PACK))}


def test_a_replaced_base_stays_while_a_session_builds_upon_it(depot: Depot) -> None:
    one, of_base = depot.begun(1), depot.pack()
    with depot.engine.alone():
        keyrows.open_domain(depot.engine, "p", keyrows.Domain(key=b"", chunks=b""))
    for n, root in enumerate((f"{BASE}/0-1", f"{BASE}/0-2", f"{BASE}/0-3")):
        depot.seal(one.id, root, new=of_base if n == 0 else "", family=BASE)
        with depot.engine.alone():
            keyrows.publish(depot.engine, "p", root)
    one = depot.save(one, 1, uses=(of_base,))
    one = depot.ended(one)
    depot.clock.time += BASE_SETTLED_S
    depot.settle()
    assert depot.opens(one.id, f"{one.id}/1-1")
    assert {key for key in depot.objects if key.startswith("roots/base.")} == {f"roots/{BASE}/0-1", f"roots/{BASE}/0-3"}
    with depot.engine.alone():
        collecting.erase(depot.engine, [one.id])
    depot.settle()
    assert {key for key in depot.objects if key.startswith("roots/")} == {f"roots/{BASE}/0-3"}
    with depot.engine.alone():
        collecting.erase_base(depot.engine, "p")
    depot.settle()
    assert depot.objects == set()


def bases(depot: Depot) -> set[str]:
    return {key.rpartition("/")[2] for key in depot.objects if key.startswith("roots/base.")}


def test_a_base_whose_runner_died_at_any_step_is_offered_to_nobody_and_leaves_nothing(depot: Depot) -> None:
    one = depot.begun(1)
    with depot.engine.alone():
        keyrows.open_domain(depot.engine, "p", keyrows.Domain(key=b"", chunks=b""))
        keyrows.begin(depot.engine, BASE, one.id)
    depot.objects |= {f"packs/{BASE}/{depot.pack()}", f"roots/{BASE}/0-7"}  # uploaded, never sealed
    depot.seal(one.id, f"{BASE}/0-8", family=BASE)
    depot.seal(one.id, f"{BASE}/0-9", family=BASE)
    depot.objects.discard(f"roots/{BASE}/0-9")  # sealed, and never written
    with depot.engine.alone(), pytest.raises(Refused, match="checkpoint_gone"):
        keyrows.publish(depot.engine, "p", f"{BASE}/0-7")
    assert keyrows.domain(depot.engine, "p") == keyrows.Domain(key=b"", chunks=b"")
    depot.round()
    assert "0-8" in bases(depot), "it may yet be published"
    depot.ended(one)
    depot.clock.time += BASE_SETTLED_S
    depot.settle()
    assert depot.objects == set()


def test_a_line_of_bases_goes_with_the_first_that_builds_upon_none(depot: Depot) -> None:
    one, packs = depot.begun(1), [depot.pack() for _ in range(4)]
    with depot.engine.alone():
        keyrows.open_domain(depot.engine, "p", keyrows.Domain(key=b"", chunks=b""))

    def published(line: int, n: int, *uses: str) -> None:
        depot.seal(one.id, f"{BASE}/{line}-{n}", new=packs[n], uses=uses, family=BASE)
        with depot.engine.alone():
            keyrows.publish(depot.engine, "p", f"{BASE}/{line}-{n}")
        depot.clock.time += BASE_SETTLED_S
        depot.settle()

    published(0, 0)
    published(1, 1, packs[0])
    published(2, 2, packs[0], packs[1])
    assert bases(depot) == {"0-0", "1-1", "2-2"}
    assert depot.opens(one.id, f"{BASE}/2-2", BASE)
    one = depot.save(one, 1, uses=(packs[1],))
    published(0, 3)
    assert bases(depot) == {"0-0", "1-1", "0-3"}, "a session builds upon one, and that one upon another"
    assert depot.opens(one.id, f"{one.id}/1-1")
    depot.ended(one)
    with depot.engine.alone():
        collecting.erase(depot.engine, [one.id])
    depot.settle()
    assert bases(depot) == {"0-3"}
    assert {key for key in depot.objects if key.startswith("packs/")} == {f"packs/{BASE}/{packs[3]}"}


def test_a_fork_that_never_comes_to_be_gives_its_checkpoint_free(depot: Depot) -> None:
    one = depot.save(depot.save(depot.begun(1), 1), 2)
    with depot.engine.alone():
        keyrows.pin(depot.engine, one.id, f"{one.id}/1-2", uid("nobody"))
        with pytest.raises(Refused, match="checkpoint_gone"):
            keyrows.pin(depot.engine, one.id, f"{one.id}/1-7", uid("nobody"))
    for n in (3, 4):
        one = depot.save(one, n)
    depot.round()
    assert depot.opens(one.id, f"{one.id}/1-2")
    depot.clock.time += PIN_S
    depot.settle()
    assert not depot.opens(one.id, f"{one.id}/1-2")
