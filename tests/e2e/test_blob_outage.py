"""The blob store is away: sessions work on, nothing is freed before it is saved, and it heals alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.model import bash, said, word
from tests.e2e.stage import Stage, staged, until


@contextmanager
def no_blobs(stage: Stage) -> Iterator[None]:
    """Every read and write of the store fails, and nothing of it looks missing."""
    aside = stage.blobs.with_name("aside")
    stage.blobs.rename(aside)
    stage.blobs.write_text("no folder")
    try:
        yield
    finally:
        stage.blobs.unlink()
        aside.rename(stage.blobs)


def test_work_goes_on_without_blobs_parks_and_resumes_wait_for_them_and_nothing_is_lost() -> None:
    with staged() as stage:
        stage.runners("one")
        parked = stage.session(said(word("parked"), bash("echo saved > saved.txt")))
        works = stage.session(said(word("works"), {"text": "ready"}))
        for s in (parked, works):
            until(lambda s=s: s.count("checkpoint.saved") >= 2, why=s.story)  # type: ignore[misc]
        parked.parked()
        until(lambda: (stage.folder / "one" / ".warm" / parked.id).exists())
        stage.evict(parked)
        with no_blobs(stage):
            parked.send(back := word("back"), {"text": "back again"})
            works.send(word("unsaved"), bash("echo unsaved > unsaved.txt"), {"text": "worked"})
            works.first("assistant.message", text="worked")
            works.shown("waiting")
            works.post({"type": "user.park"})
            works.shown("parking")
            parked.shown("resuming")
            until(lambda: stage.parts["one"].tail().count("blobs_away") >= 4)
            assert parked.look()["shown"] == "resuming"
            until(lambda: "disk seems not to be there" in str(works.look()["reason"]), why=works.story)
            assert works.look()["shown"] == "parking"
        works.shown("parked")
        parked.first("assistant.message", text="back again")
        assert stage.model.openings(back) == 1
        works.send(word("again"), {"text": "here again"})
        works.first("assistant.message", text="here again")
        assert (stage.root_of(works) / "workspace" / "unsaved.txt").read_text() == "unsaved\n"
        assert (stage.root_of(parked) / "workspace" / "saved.txt").read_text() == "saved\n"
        for s in (parked, works):
            assert not s.events("environment.lost", "environment.rolled_back")
            s.whole()
