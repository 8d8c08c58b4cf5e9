"""A workspace that moves from runner to runner and back is the same, bit for bit, each time."""

from __future__ import annotations

from bide.snapshots.compare import Described
from tests.e2e.folders import described, differing
from tests.e2e.model import said, word
from tests.e2e.stage import Session, Stage, until

FIRST = r"""
set -e
echo changed >> README.md; mkdir -p build/deep/er empty
head -c 300000 /dev/urandom > build/deep/er/blob.bin; head -c 3000000 /dev/zero > build/zero.bin
echo line > debug.log; printf 'untracked' > notes.txt; chmod 640 notes.txt; ln notes.txt hard.txt
ln -s README.md link; ln -s nowhere/at/all dangling; ln -s /etc absolute
touch -d '2001-02-03 04:05:06.123456789' notes.txt; printf x > "$(printf 'caf\351')"
truncate -s 5M sparse; printf end >> sparse
echo stashed >> run.sh; git stash -q; git checkout -q -b topic; echo more >> README.md; git add README.md
git commit -qm second; echo staged > staged.txt; git add staged.txt
mkdir -p ~/.cache/tool; echo cached > ~/.cache/tool/file; touch -d '1999-01-01' empty
"""
NEXT = r"""
set -e
git stash list | grep -c stash; git status --porcelain; git log --oneline | wc -l
rm -f build/zero.bin debug.log; mv link moved-%d; ln -s README.md link; chmod 755 notes.txt; head -c 200000 /dev/urandom > build/round-%d.bin
echo again >> README.md; rm -rf build/deep; mkdir -p build/deep; ln -sfn README.md dangling; echo stash2 >> run.sh
git stash -q; touch -d '2002-02-02 02:02:02.2' build
"""


def test_three_round_trips_between_two_runners_change_nothing(shared: Stage) -> None:
    """Each runner is gone while the other works; the first one comes back to a stale folder of its own."""
    shared.runners("trip-one", pool="trip")
    s = shared.session(said(word("task"), {"run": FIRST}), runtime="scripted", pool="trip")
    s.first("turn.ended")
    assert s.events("tool.result")[0]["data"]["ok"], s.story()
    before: dict[bytes, Described] = {}
    for round_, name in enumerate(("trip-two", "trip-one", "trip-two"), 1):
        last = "trip-one" if name == "trip-two" else "trip-two"
        came = shared.runner(name, "trip")
        before = leave(shared, s, last)
        shared.online(came)
        assert shared.parts[last].stop() == 0
        s.send("look", {"sleep": 0.01})
        turns(s, 2 * round_)
        restored = s.events("environment.restored")[-1]["data"]
        assert restored["source"] == "checkpoint"
        assert s.events("session.leased")[-1]["data"]["runner_name"] == name
        assert differing(before, described(shared.folder / name / s.id)) == []
        s.send("change", {"run": NEXT % (round_, round_)})
        turns(s, 2 * round_ + 1)
        result = s.events("tool.result")[-1]["data"]
        assert result["ok"], result
        assert result["output"].splitlines()[0] == str(round_), "every stash is still there"
    before = leave(shared, s, "trip-two")
    s.send("look", {"sleep": 0.01})
    turns(s, 8)
    assert s.events("environment.restored")[-1]["data"]["source"] == "warm"
    assert differing(before, described(shared.folder / "trip-two" / s.id)) == []
    s.whole()


def turns(s: Session, count: int) -> None:
    """Returns once so many turns have ended."""
    until(lambda: s.count("turn.ended") == count, why=s.story)


def leave(stage: Stage, s: Session, name: str) -> dict[bytes, Described]:
    """Parks; gives what the folder on that runner was when everything had stopped."""
    s.parked()
    until(lambda: (stage.folder / name / ".warm" / s.id).exists())
    return described(stage.folder / name / s.id)
