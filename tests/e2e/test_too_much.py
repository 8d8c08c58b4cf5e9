"""A workspace above its limit: said once to everybody, nothing of it uploaded, and the session works on."""

from __future__ import annotations

from tests.e2e.model import bash, newest_texts, said, word
from tests.e2e.stage import Stage, until

MIB = 1 << 20
SENTENCE = "at most 2 MiB can be saved (workspace_bytes)"


def test_a_session_that_holds_too_much_is_told_works_on_and_parks_once_it_fits(stage: Stage) -> None:
    task, more, less = word("task"), word("more"), word("less")
    s = stage.session(said(task, bash("echo kept >kept.txt")), workspace_bytes=2 * MIB)
    until(lambda: s.count("checkpoint.saved") >= 2, why=s.story)
    good = s.look()["checkpoint"]["n"]
    s.send(more, bash(f"head -c {3 * MIB} /dev/urandom >build.log"))
    failed = s.first("checkpoint.failed", code="over_quota")
    assert SENTENCE in failed["data"]["reason"]
    uploaded = {path for path in stage.blobs.rglob(f"*/{s.id}/*") if path.is_file()}
    s.post({"type": "user.park"})
    until(lambda: s.count("checkpoint.failed") == 2, why=s.story)
    now = s.shown("waiting")
    assert SENTENCE in now["reason"]
    assert (now["checkpoint"]["n"], s.count("session.parked")) == (good, 0)
    assert {path for path in stage.blobs.rglob(f"*/{s.id}/*") if path.is_file()} == uploaded
    s.send(less, bash("rm build.log"))
    s.shown("parked")
    told = [text for request in stage.model.about(less) for text in newest_texts(request)]
    assert any(SENTENCE in text and "Delete what can be made again" in text for text in told), told
    assert s.count("checkpoint.failed") == 2, "not one more for each try"
    assert s.look()["checkpoint"]["n"] > good
    s.whole()
