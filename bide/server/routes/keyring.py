"""Keys of checkpoints: what a capture begins with, sealing, and what opens a root. For the runner that holds a session."""

from __future__ import annotations

from msgspec import Struct

from bide.core.collection import session_of
from bide.core.keyring import Keys, Opening, Seal, Sealed, base_family, require_sound
from bide.core.limits import BLOB_KEY_CHARS
from bide.core.refusals import Refused
from bide.core.session import Session
from bide.server.calls import Call, Table

TABLE = Table()


class Which(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`base`: for a checkpoint that is to become the base of the session's project."""

    base: bool = False


class Root(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a checkpoint's root."""

    root: str


@TABLE.get("/v1/sessions/{session}/opening", who="runner")
async def get_opening(call: Call, query: Which) -> Opening:
    """What a capture of the session begins with."""
    return await call.parts.keyring.opening(call.id("session"), _runner(call), base=query.base)


@TABLE.post("/v1/sessions/{session}/seals", who="runner")
async def post_seal(call: Call, body: Seal) -> Sealed:
    """Stores the keys of a root and its new packs; with `gone`, nothing: it builds upon packs that are not there."""
    require_sound(body)
    return await call.parts.keyring.seal(call.id("session"), _runner(call), body)


@TABLE.get("/v1/sessions/{session}/keys", who="runner")
async def get_keys(call: Call, query: Root) -> Keys:
    """What opens a root that the session is restored from or builds upon."""
    s = await _held(call)
    if len(query.root) > BLOB_KEY_CHARS or not _may_open(s, query.root):
        raise Refused("forbidden", "The session is not restored from this checkpoint.")
    return await call.parts.keyring.keys(s, query.root)


@TABLE.post("/v1/sessions/{session}/base", who="runner", status=204)
async def post_base(call: Call, body: Root) -> None:
    """Offers a checkpoint that was sealed as one, and is written, as the base of the session's project: it is read first."""
    await _held(call)
    await call.parts.blobs.size(f"roots/{body.root}")
    await call.parts.keyring.publish(call.id("session"), _runner(call), body.root)


async def _held(call: Call) -> Session:
    s = await call.parts.store.session(call.id("session"))
    if s is None or s.lease is None or s.lease.runner != _runner(call):
        raise Refused("forbidden", "This runner does not hold the session.")
    return s


def _runner(call: Call) -> str:
    if call.actor.role != "runner":
        raise Refused("forbidden", "Keys are given to runners only.", "Use `bide export` to take a checkpoint out.")
    return call.actor.runner


def _may_open(s: Session, root: str) -> bool:
    """Its own, those it stands on, which may be another's where it is a fork, and its project's base."""
    standing = {saved.root for saved in (s.checkpoint, s.earlier) if saved is not None}
    return root in standing or session_of(root) in (s.id, base_family(s.project))
