"""The keys of checkpoints: given out to the runner that holds a session, taken in when it seals one."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from msgspec.structs import replace

from bide.core.collection import session_of
from bide.core.keyring import (
    KEY_SIZE,
    Keys,
    NewPack,
    Opening,
    Seal,
    Sealed,
    base_family,
    family_of,
    family_to_seal_in,
    family_to_write_in,
)
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.server import projects
from bide.server.wrapping import Wrapper, WrongKey
from bide.store import bases, keyrows
from bide.store.base import Engine, Reader
from bide.store.threaded import Store


class Keyring:
    """All methods raise `Refused('checkpoint_gone')` for keys that are not there, and `Unavailable`."""

    def __init__(self, store: Store, master: Wrapper) -> None:
        self._store, self._master = store, master

    async def opening(self, session: str, runner: str, *, base: bool = False) -> Opening:
        """What a capture of a session begins with, or one of its project's base."""
        return await self._store.write(lambda engine: self._opening(engine, session, runner, base=base))

    async def seal(self, session: str, runner: str, seal: Seal) -> Sealed:
        """Stores the keys of a root, once all it builds upon is certain to stay. `Refused`: `forbidden`, `fenced`,
        `checkpoint_taken`.
        """
        return Sealed(gone=await self._store.write(lambda engine: self._seal(engine, session, runner, seal)))

    async def keys(self, s: Session, root: str) -> Keys:
        """What opens a root of the session's family, or of its project's base."""
        return await self._store.read(lambda reader: keys_in(reader, self._master, s, root))

    async def base_keys(self, project: str, root: str) -> Keys:
        """What opens a root of a project's base."""
        family = base_family(project)
        return await self._store.read(lambda reader: _keys(reader, self._master, project, family, root))

    async def base(self, project: str) -> str:
        """The root that new sessions of the project build upon; empty when there is none."""
        found = await self._store.read(lambda reader: keyrows.domain(reader, project))
        return found.base if found else ""

    async def known(self, s: Session, roots: Collection[str]) -> frozenset[str]:
        """Those of the session's roots that there is a key to."""
        family = family_of(s)
        return await self._store.read(
            lambda reader: frozenset(root for root in roots if keyrows.is_sealed(reader, family, root))
        )

    async def is_sealed(self, s: Session, root: str) -> bool:
        """Whether the root is one that whoever holds the session may make at this moment, and has sealed."""
        family = family_to_write_in(s, root)
        return bool(family) and await self._store.read(lambda reader: keyrows.is_sealed(reader, family, root))

    async def publish(self, session: str, runner: str, root: str) -> None:
        """Offers a root that was sealed as a base, and is written, to the project's sessions: they build upon it once a server
        has read it. `Refused`: `forbidden`, `checkpoint_gone`, `base_not_wanted`.
        """

        def write(engine: Engine) -> None:
            s = _held(engine, session, runner)
            bases.offer(engine, s.project, session, runner, root)

        await self._store.write(write)

    # -- with the engine ----------------------------------------------------------------------------------------------

    def wrapping(self, engine: Engine, project: str) -> Wrapper:
        """Wraps what is a project's. Its keys are made where it had none; `Refused('no_project')` where it is gone."""
        if projects.find(engine, project) is None:
            raise Refused("no_project", f"Project {project} was deleted.")
        return self._project(keyrows.open_domain(engine, project, self._fresh(project)), project)

    def unwrapping(self, reader: Reader, project: str) -> Wrapper:
        """Unwraps what is a project's; `Refused('checkpoint_gone')` where its keys are gone."""
        return self._project(_domain(reader, project), project)

    def _opening(self, engine: Engine, session: str, runner: str, *, base: bool) -> Opening:
        s = _held(engine, session, runner)
        if projects.find(engine, s.project) is None:
            raise Refused("no_project", f"Project {s.project} was deleted.")
        family = base_family(s.project) if base else family_of(s)
        domain = keyrows.open_domain(engine, s.project, self._fresh(s.project))
        keyrows.begin(engine, family, session)
        return Opening(
            chunks=self._project(domain, s.project).unwrap(domain.chunks, f"chunks {s.project}"),
            family=family,
            base=bases.base_under(domain) if base else bases.base_for(engine, s.project, session, runner),
            wants_base=bases.is_wanted(engine, s.project, domain),
        )

    def _seal(self, engine: Engine, session: str, runner: str, seal: Seal) -> tuple[str, ...]:
        s = engine.session(session)
        family = family_to_seal_in(s, runner, seal.root)
        assert s is not None, "a session that is held is there"
        wrapper = self._project(_domain(engine, s.project), s.project)
        wrapped = replace(
            seal,
            key=wrapper.wrap(seal.key, f"root {seal.root}"),
            new=tuple(_wrapped(wrapper, family, pack) for pack in seal.new),
        )
        try:
            return keyrows.seal(engine, session, family, base_family(s.project), wrapped)
        except keyrows.Taken:
            raise Refused("checkpoint_taken", f"{seal.root} is sealed with other keys.") from None

    def _fresh(self, project: str) -> keyrows.Domain:
        key = secrets.token_bytes(KEY_SIZE)
        return keyrows.Domain(
            key=self._master.wrap(key, f"project {project}"),
            chunks=Wrapper(key).wrap(secrets.token_bytes(KEY_SIZE), f"chunks {project}"),
        )

    def _project(self, domain: keyrows.Domain, project: str) -> Wrapper:
        return _wrapper(self._master, domain, project)


def keys_in(reader: Reader, master: Wrapper, s: Session, root: str) -> Keys:
    """What opens a root of the session's family, or of its project's base; `Refused('checkpoint_gone')` without keys."""
    base = base_family(s.project)
    return _keys(reader, master, s.project, base if session_of(root) == base else family_of(s), root)


def _keys(reader: Reader, master: Wrapper, project: str, family: str, root: str) -> Keys:
    found = keyrows.opened(reader, family, base_family(project), root)
    if found is None:
        raise _gone(root)
    row, packs = found
    domain = _domain(reader, project)
    wrapper = _wrapper(master, domain, project)
    try:
        return Keys(
            chunks=wrapper.unwrap(domain.chunks, f"chunks {project}"),
            root=wrapper.unwrap(row.key, f"root {root}"),
            packs={pack: wrapper.unwrap(one.key, _pack(one.family, pack)) for pack, one in packs.items()},
        )
    except WrongKey:
        raise _gone(root) from None


def _wrapper(master: Wrapper, domain: keyrows.Domain, project: str) -> Wrapper:
    return Wrapper(master.unwrap(domain.key, f"project {project}"))


def _held(engine: Engine, session: str, runner: str) -> Session:
    s = engine.session(session)
    if s is None or s.lease is None or s.lease.runner != runner:
        raise Refused("forbidden", "This runner does not hold the session.")
    return s


def _domain(reader: Reader, project: str) -> keyrows.Domain:
    found = keyrows.domain(reader, project)
    if found is None:
        raise Refused("checkpoint_gone", f"The keys of project {project} are gone: it was deleted.")
    return found


def _wrapped(wrapper: Wrapper, family: str, pack: NewPack) -> NewPack:
    return replace(pack, key=wrapper.wrap(pack.key, _pack(family, pack.id)))


def _pack(family: str, pack: str) -> str:
    return f"pack {family}/{pack}"


def _gone(root: str) -> Refused:
    return Refused("checkpoint_gone", f"There is no key to checkpoint {root}: it was erased, or it was never finished.")
