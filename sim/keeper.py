"""The keeper of the keys: seals and opens checkpoints on the store's rows, collects in rounds that die, and erases.

It draws from a well of its own, so that what befalls it changes no other weather.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from bide.core.collection import PackRow, RootRow, session_of, wanted
from bide.core.keyring import NewPack, Seal, base_family, family_of, family_to_seal_in
from bide.core.refusals import Refused, Unavailable
from bide.store import collecting, keyrows, rounds
from bide.store.base import Engine
from sim.blobs import Blobs, content
from sim.clock import Clock
from sim.database import Database
from sim.runtimes import Disk
from sim.witness import Violation

T = TypeVar("T")
ROUND_S = 3.0
LOOK_S = 3  # what is gone stays gone
PATIENCE = rounds.Patience(condemned_s=6.0, orphan_s=6.0, erased_s=1e9, families=2, objects=50, facts=20)


class Upload:
    """What a capture has read, and the packs that hold it."""

    def __init__(self, disk: Disk) -> None:
        self.disk, self.wanted = disk, content(disk)
        self.uses: list[str] = []
        self.new: list[str] = []


class Keeper:
    """The servers' keyring and collector. What they do with the database can fail like everything else there."""

    def __init__(self, clock: Clock, database: Database, blobs: Blobs, rng: random.Random) -> None:
        self.clock, self.database, self.blobs, self.rng = clock, database, blobs, rng
        self.erased: set[str] = set()
        self._places = rounds.Places()
        clock.after(ROUND_S, self._begin_round)

    # -- captures and restores, from a runner -------------------------------------------------------------------------

    def upload(self, session: str, parent: str, disk: Disk) -> Upload:
        """Reads, looks up what the packs of the parent hold already, and uploads the rest. Raises `Unavailable`."""
        up = Upload(disk)
        family = self._alone(lambda engine: self._open(engine, session))
        left = set(up.wanted)
        if parent and self.rng.random() < 0.1:  # what a runner remembers may be old, and gone by now
            parent = self.rng.choice([root for root in self.blobs.named if session_of(root) == session] or [parent])
        for key in self.blobs.named.get(parent, ()):
            pieces = self.blobs.ever_packed[key]
            if pieces & left and self.rng.random() < 0.9:
                up.uses.append(key.rpartition("/")[2])
                left -= pieces
        self._put(family, up, left)
        return up

    def _open(self, engine: Engine, session: str) -> str:
        s = engine.session(session)
        family = family_of(s) if s is not None else session
        keyrows.begin(engine, family, session)
        return family

    def _put(self, family: str, up: Upload, pieces: set[str]) -> None:
        if pieces:
            up.new.append(self.rng.randbytes(16).hex())
            self.blobs.put_pack(keyrows.pack_object(family, up.new[-1]), frozenset(pieces))

    def seal(self, runner: str, session: str, root: str, up: Upload) -> tuple[str, ...]:
        """Seals the root; the keys of its packs in the store. Raises `Refused` or `Unavailable`."""
        for _ in range(5):
            family, gone = self._alone(lambda engine: self._seal(engine, runner, session, root, up))
            if not gone:
                return tuple(keyrows.pack_object(family, pack) for pack in (*up.uses, *up.new))
            up.uses = [pack for pack in up.uses if pack not in gone]
            up.new = [pack for pack in up.new if pack not in gone]
            self.clock.happened("built_upon_what_is_gone")
            have = self.blobs.holding(tuple(keyrows.pack_object(family, pack) for pack in (*up.uses, *up.new)))
            self._put(family, up, set(up.wanted - have))
        raise Unavailable("the keyring", "what it builds upon is always gone")

    def _seal(self, engine: Engine, runner: str, session: str, root: str, up: Upload) -> tuple[str, tuple[str, ...]]:
        s = engine.session(session)
        family = family_to_seal_in(s, runner, root)
        assert s is not None
        new = tuple(NewPack(id=pack, size=1, hash=b"", key=b"k") for pack in up.new)
        wrapped = Seal(root=root, key=root.encode(), new=new, uses=tuple(up.uses))
        try:
            return family, keyrows.seal(engine, session, family, base_family(s.project), wrapped)
        except keyrows.Taken:
            raise Refused("checkpoint_taken", "It was saved by another.") from None

    def can_open(self, session: str, root: str) -> bool:
        """Whether a root can be restored: its keys and its objects are there. Raises `Unavailable`."""
        return self._call(lambda engine: self.opens(engine, session, root)) and self.blobs.whole(root)

    @staticmethod
    def opens(engine: Engine, session: str, root: str) -> bool:
        """Whether all keys of a root are there."""
        s = engine.session(session)
        if s is None:
            return False
        found = keyrows.opened(engine, family_of(s), base_family(s.project), root)
        return found is not None and set(found[0].names) == set(found[1])

    # -- the database, with its failures ------------------------------------------------------------------------------

    def _call(self, do: Callable[[Engine], T]) -> T:
        refused = self.rng.random() < self.clock.faults.store_refuses
        if self.clock.now < self.database.away_until or refused:
            raise Unavailable("the database", "it is away")
        return do(self.database.engine)

    def _alone(self, do: Callable[[Engine], T]) -> T:
        def whole(engine: Engine) -> T:
            with engine.alone():
                return do(engine)

        result = self._call(whole)
        if self.rng.random() < self.clock.faults.store_forgets:
            raise Unavailable("the database", "the line broke after the commit")
        return result

    # -- the collector ------------------------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        """A round may still be under way when the next begins, at another server."""
        self.clock.after(ROUND_S, self._begin_round)
        self._advance(rounds.collecting_round(self._places, PATIENCE), None)

    def _advance(self, steps: rounds.Round, answer: object) -> None:
        if self.clock.faults.collector_crash and self.rng.random() < self.clock.faults.collector_crash:
            self.clock.struck["collector_crash"] += 1
            self._places = rounds.Places()
            return
        try:
            step = steps.send(answer)
        except StopIteration:
            return
        pause = self.rng.uniform(0, 0.05) if self.rng.random() < 0.95 else self.rng.uniform(0.5, 5)
        self.clock.after(pause, lambda: self._perform(steps, step))

    def _perform(self, steps: rounds.Round, step: rounds.Step) -> None:
        answer: object
        try:
            match step:
                case rounds.Look(call=call):
                    answer = self._call(call)
                case rounds.Change(call=call):
                    answer = self._alone(call)
                case rounds.Listed(prefixes=prefixes):
                    answer = [key for prefix in prefixes for key in self._blobs().objects(prefix)]
                case rounds.Delete(object=key):
                    answer = self._blobs().delete(key)
                case rounds.Wipe():
                    answer = self.rng.random() < 0.7
                case rounds.Failed(error=error):
                    raise error
        except Unavailable:
            return
        self._advance(steps, answer)

    def _blobs(self) -> Blobs:
        if self.blobs.away:
            raise Unavailable("the blob store", "it is away")
        return self.blobs

    # -- erasure ------------------------------------------------------------------------------------------------------

    def each_second(self, sessions: list[str]) -> None:
        """Somebody erases a session now and then; and what another stands on can be opened."""
        if self.clock.faults.erase and self.rng.random() < self.clock.faults.erase:
            self._erase(self.rng.choice(sessions))
        if round(self.clock.now) % LOOK_S == 0:
            for session in sessions:
                self._can_be_opened(session)

    def _erase(self, session: str) -> None:
        engine = self.database.engine
        s = engine.session(session)
        if s is None:
            return
        with suppress(Refused, Unavailable):
            self._alone(lambda engine: collecting.erase(engine, [session]))
        if engine.session(session) is not None:
            return
        self.clock.happened("erased", session[14:23])
        self.erased.add(session)
        family = family_of(s)
        roots = keyrows.rows(engine, keyrows.ROOT, family, RootRow)
        pins = keyrows.rows(engine, keyrows.PIN, family, keyrows.At)
        known, held = collecting.members(engine, family, roots, pins), {pin.rpartition("/")[0] for pin in pins}
        held |= {root for member in known.values() for root in wanted(member)}
        if alive := [root for root in roots if session_of(root) == session and root not in held]:
            raise Violation(f"{session} was erased, and there are keys of {alive}")
        packs = set(keyrows.rows(engine, keyrows.PACK, family, PackRow))
        if left := packs - {pack for row in roots.values() for pack in row.names}:
            raise Violation(f"{session} was erased, and there are keys of packs {left}")

    # -- what must hold -----------------------------------------------------------------------------------------------

    def _can_be_opened(self, session: str) -> None:
        engine = self.database.engine
        s = engine.session(session)
        if s is None:
            return
        for saved in (s.checkpoint, s.earlier):
            if saved is None or self.blobs.taken(saved.root):
                continue
            if not self.opens(engine, session, saved.root):
                raise Violation(f"{session} stands on {saved.root}, and keys of it are gone")
            if not self.blobs.whole(saved.root):
                raise Violation(f"{session} stands on {saved.root}, and objects of it are gone")

    def quiet(self) -> bool:
        """Whether there is nothing more to collect."""
        engine = self.database.engine
        waiting = (keyrows.CONDEMNED, keyrows.CAPTURE, keyrows.DOOMED)
        families = {key.partition("/")[0] for key in engine.keys(keyrows.ROOT)}
        return not any(engine.documents(kind, "", 1) for kind in waiting) and not any(
            collecting.judge(engine, family) for family in families
        )

    def in_the_end(self, sessions: list[str]) -> None:
        """Nothing is left that nobody wants, and nothing of what was erased."""
        engine = self.database.engine
        if not self.quiet():
            raise Violation("the collector does not come to an end")
        rows = {keyrows.root_object(key.partition("/")[2]) for key in engine.keys(keyrows.ROOT)}
        rows |= {f"packs/{key}" for key in engine.keys(keyrows.PACK)}
        if extra := set(self.blobs.objects()) - rows:
            raise Violation(f"objects are left that nobody can open: {sorted(extra)}")
        for session in self.erased:
            if engine.session(session) is not None or engine.events(session, 0, 1):
                raise Violation(f"{session} was erased, and something of it is there")
        for session in sessions:
            self._can_be_opened(session)
