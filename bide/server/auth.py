"""Who is asking: opaque bearer tokens, stored only as hashes, each with a role."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import Literal

import msgspec
from msgspec import Struct

from bide.core.limits import RUNNER_TOKENS_MAX, TOKEN_CACHE_S, TOKENS_CACHED_MAX
from bide.core.refusals import Refused
from bide.server.config import Config
from bide.store.base import Engine
from bide.store.threaded import Store

Role = Literal["owner", "runner", "enrolment"]
TOKEN, OF_RUNNER = "token", "runner_tokens"


class Actor(Struct, frozen=True, kw_only=True):
    """Who a token stands for. `name` is what facts say about who did it; `page`: it was done in a browser."""

    role: Role
    name: str
    runner: str = ""  # id, for role runner
    created_at: float = 0.0
    page: bool = False

    def require_runner(self, runner_id: str) -> None:
        """A runner speaks for itself only; the owner for everybody."""
        if self.role == "runner" and self.runner != runner_id:
            raise Refused("forbidden", "This token belongs to another runner.")

    def require_enrolment(self) -> None:
        """Runners come and go by the enrolment token or the owner's; none sends another away."""
        if self.role == "runner":
            raise Refused("forbidden", "A runner's own token empties no runner.")


def digest(token: str) -> str:
    """What is stored of a token. Tokens are long and random, so that a plain hash cannot be guessed back."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def issue(engine: Engine, actor: Actor) -> str:
    """A new token for the actor; the store keeps its hash only."""
    token = f"bide_{actor.role}_{secrets.token_urlsafe(32)}"
    engine.put(TOKEN, digest(token), msgspec.json.encode(actor))
    return token


def issue_for_runner(engine: Engine, actor: Actor) -> str:
    """A new token for a runner; its oldest ones end. Called `alone`: two servers must not each forget one."""
    kept = msgspec.json.decode(engine.get(OF_RUNNER, actor.runner) or b"[]", type=list[str])
    token = issue(engine, actor)
    kept.append(digest(token))
    for old in kept[:-RUNNER_TOKENS_MAX]:
        engine.delete(TOKEN, old)
    engine.put(OF_RUNNER, actor.runner, msgspec.json.encode(kept[-RUNNER_TOKENS_MAX:]))
    return token


def end_of_runner(engine: Engine, runner_id: str) -> None:
    """Ends all tokens of a runner."""
    for old in msgspec.json.decode(engine.get(OF_RUNNER, runner_id) or b"[]", type=list[str]):
        engine.delete(TOKEN, old)
    engine.delete(OF_RUNNER, runner_id)


class Tokens:
    """Whom tokens stand for, as the store says; what it said is believed for TOKEN_CACHE_S, a no never."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, Actor]] = {}  # digest -> until when it is believed

    async def actor(self, token: str) -> Actor | None:
        """Whom the token stands for, or None."""
        return await self._named(digest(token))

    async def holds(self, name: str) -> bool:
        """Whether the token of this digest is still good."""
        return await self._named(name) is not None

    async def _named(self, name: str) -> Actor | None:
        now = time.monotonic()
        until, actor = self._known.get(name, (0.0, None))
        if now < until:
            return actor
        found = await self._store.get(TOKEN, name)
        self._known.pop(name, None)
        if not found:
            return None
        actor = msgspec.json.decode(found, type=Actor)
        self._known[name] = now + TOKEN_CACHE_S, actor
        if len(self._known) > TOKENS_CACHED_MAX:
            del self._known[next(iter(self._known))]
        return actor


def _configured(config: Config, token: str) -> Actor | None:
    """Whom a token of the server's own settings stands for. These are stored nowhere: taken away, they hold no more."""
    known: tuple[tuple[Role, str], ...] = (("owner", config.owner_token), ("enrolment", config.enrolment_token))
    given = token.encode("utf-8", "surrogatepass")
    for role, wanted in known:
        if wanted and hmac.compare_digest(wanted.encode(), given):
            return Actor(role=role, name=role)
    return None


def bearer(header: str) -> str:
    """The token of an `Authorization` header, or `Refused('unauthenticated')`."""
    scheme, _, token = header.partition(" ")
    if not header:
        raise Refused("unauthenticated", "The request carries no token.")
    if not hmac.compare_digest(scheme.lower().encode(), b"bearer") or not token.strip():
        raise Refused("unauthenticated", "The token must come as `Authorization: Bearer …`.")
    return token.strip()


async def authenticate(tokens: Tokens, config: Config, header: str) -> Actor:
    """The actor of an `Authorization` header, or `Refused('unauthenticated')`."""
    token = bearer(header)
    actor = _configured(config, token) or await tokens.actor(token)
    if actor is None:
        raise Refused("unauthenticated", "This token is not known here.")
    return actor
