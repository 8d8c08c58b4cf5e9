"""Pieces of sessions: whoever dies while one is brought or erased, no object is left that no row knows of."""

from __future__ import annotations

from bide.store import collecting, keyrows, pieces, strays
from tests.store.story import uid
from tests.store.test_collecting import PATIENCE, Depot, Made, depot, made

__all__ = ["depot", "made"]
FRESH = pieces.Pieces(key=b"k")


def begun(depot: Depot, session: str, name: str, object_: str) -> None:
    with depot.engine.alone():
        pieces.open_all(depot.engine, session, FRESH)
        pieces.begin(depot.engine, session, name, pieces.Piece(key=b"k", object=object_, at=depot.clock.time))


def brought(depot: Depot, session: str, name: str, object_: str, size: int = 7) -> bool:
    depot.objects.add(object_)
    with depot.engine.alone():
        return pieces.finish(depot.engine, session, name, size, object_)


def rows(depot: Depot) -> list[str]:
    kinds = (pieces.PIECE, pieces.BEGUN, pieces.PIECES, keyrows.CONDEMNED)
    return [key for kind in kinds for key in depot.engine.keys(kind)]


def test_a_piece_is_there_once_it_was_brought_and_is_counted(depot: Depot) -> None:
    begun(depot, "s", "1-2", "pieces/s/1-2-a")
    assert pieces.one(depot.engine, "s", "1-2") is None
    assert brought(depot, "s", "1-2", "pieces/s/1-2-a")
    found = pieces.one(depot.engine, "s", "1-2")
    assert found is not None
    assert (found.object, found.size) == ("pieces/s/1-2-a", 7)
    known = pieces.all_of(depot.engine, "s")
    assert known is not None
    assert (known.count, known.size) == (1, 7)
    depot.settle()
    assert depot.objects == {"pieces/s/1-2-a"}


def test_of_two_tries_one_counts_and_the_other_leaves_nothing(depot: Depot) -> None:
    begun(depot, "s", "1-2", "pieces/s/1-2-a")
    begun(depot, "s", "1-2", "pieces/s/1-2-b")
    assert not brought(depot, "s", "1-2", "pieces/s/1-2-a"), "another try has begun since"
    assert brought(depot, "s", "1-2", "pieces/s/1-2-b")
    depot.settle()
    assert depot.objects == {"pieces/s/1-2-b"}


def test_what_was_begun_and_never_brought_goes_after_a_while(depot: Depot) -> None:
    begun(depot, "s", "1-2", "pieces/s/1-2-a")
    depot.objects.add("pieces/s/1-2-a")
    depot.round()
    assert depot.objects == {"pieces/s/1-2-a"}, "it may still be under way"
    depot.settle()
    assert depot.objects == set()
    assert rows(depot) == ["s"]


def test_pieces_of_an_erased_session_are_locked_at_once_and_gone_wherever_the_server_dies(made: Made) -> None:
    for dead_at in range(1, 30):
        depot = made()
        one = depot.ended(depot.save(depot.begun(1), 1))
        for n in range(10):
            begun(depot, one.id, f"1-{n}", f"pieces/{one.id}/1-{n}-a")
            assert brought(depot, one.id, f"1-{n}", f"pieces/{one.id}/1-{n}-a")
        begun(depot, one.id, "1-99", f"pieces/{one.id}/1-99-a")
        begun(depot, uid("other"), "1-0", "pieces/other/1-0-a")
        assert brought(depot, uid("other"), "1-0", "pieces/other/1-0-a")
        with depot.engine.alone():
            assert collecting.erase(depot.engine, [one.id]) == ()
        assert pieces.all_of(depot.engine, one.id) is None, "without its key nobody reads any of it"
        assert not brought(depot, one.id, "1-99", f"pieces/{one.id}/1-99-a")
        for _ in range(4):
            depot.round(dead_at)
            depot.clock.time += 61
        depot.settle()
        assert depot.objects == {"pieces/other/1-0-a"}, dead_at
        assert rows(depot) == [f"{uid('other')}/1-0", uid("other")], dead_at


def test_who_looks_for_strays_is_told_of_pieces_that_no_row_names_and_of_no_others(depot: Depot) -> None:
    begun(depot, "s", "1-2", "pieces/s/1-2-a")
    assert brought(depot, "s", "1-2", "pieces/s/1-2-a")
    begun(depot, "s", "1-3", "pieces/s/1-3-b")
    objects = ["pieces/s/1-2-a", "pieces/s/1-3-b", "pieces/s/1-2-c", "pieces/gone/1-1-d"]

    def fates() -> list[tuple[str, str]]:
        return [(one.object, one.fate) for one in strays.strays(depot.engine, objects, {}, PATIENCE)]

    unknown = [("pieces/s/1-2-c", "unknown"), ("pieces/gone/1-1-d", "unknown")]
    assert fates() == [("pieces/s/1-3-b", "underway"), *unknown]
    depot.clock.time += PATIENCE.orphan_s
    assert fates() == [("pieces/s/1-3-b", "unfinished"), *unknown]
    depot.round()
    assert fates() == [("pieces/s/1-3-b", "condemned"), *unknown]


def test_a_page_of_pieces_ends_with_the_sessions_own(depot: Depot) -> None:
    for session in ("a", "b", "c"):
        for n in range(3):
            begun(depot, session, f"1-{n}", f"pieces/{session}/1-{n}-a")
            assert brought(depot, session, f"1-{n}", f"pieces/{session}/1-{n}-a")
    assert [name for name, _ in pieces.page(depot.engine, "b", "1-", "", 10)] == ["1-0", "1-1", "1-2"]
    assert [name for name, _ in pieces.page(depot.engine, "b", "1-", "1-0", 1)] == ["1-1"]
    assert pieces.page(depot.engine, "b", "0-", "", 10) == pieces.page(depot.engine, "d", "1-", "", 10) == []
