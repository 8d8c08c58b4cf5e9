"""Who is asking: opaque bearer tokens, stored only as hashes, each with a role."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Literal

import msgspec
from msgspec import Struct

from bide.core.limits import RUNNER_TOKENS_MAX
from bide.core.refusals import Refused
from bide.store.threaded import Store

Role = Literal["owner", "runner"]
TOKEN, OF_RUNNER = "token", "runner_tokens"


class Actor(Struct, frozen=True, kw_only=True):
    """Who a token stands for. `name` is what facts say about who did it."""

    role: Role
    name: str
    runner: str = ""  # id, for role runner
    created_at: float = 0.0

    def require_runner(self, runner_id: str) -> None:
        """A runner speaks for itself only; the owner for everybody."""
        if self.role == "runner" and self.runner != runner_id:
            raise Refused("forbidden", "This token belongs to another runner.")


def digest(token: str) -> str:
    """What is stored of a token. Tokens are long and random, so that a plain hash cannot be guessed back."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


async def issue(store: Store, actor: Actor) -> str:
    """A new token for the actor; the store keeps its hash only."""
    token = f"bide_{actor.role}_{secrets.token_urlsafe(32)}"
    await store.put(TOKEN, digest(token), msgspec.json.encode(actor))
    return token


async def issue_for_runner(store: Store, actor: Actor) -> str:
    """A new token for a runner; its oldest ones end."""
    kept = msgspec.json.decode(await store.get(OF_RUNNER, actor.runner) or b"[]", type=list[str])
    token = await issue(store, actor)
    kept.append(digest(token))
    for old in kept[:-RUNNER_TOKENS_MAX]:
        await store.delete(TOKEN, old)
    await store.put(OF_RUNNER, actor.runner, msgspec.json.encode(kept[-RUNNER_TOKENS_MAX:]))
    return token


async def actor_of(store: Store, token: str) -> Actor | None:
    """Whom the token stands for, or None."""
    found = await store.get(TOKEN, digest(token))
    return msgspec.json.decode(found, type=Actor) if found else None


async def authenticate(store: Store, header: str) -> Actor:
    """The actor of an `Authorization` header, or `Refused('unauthenticated')`."""
    scheme, _, token = header.partition(" ")
    if not header:
        raise Refused("unauthenticated", "The request carries no token.")
    if not hmac.compare_digest(scheme.lower().encode(), b"bearer") or not token.strip():
        raise Refused("unauthenticated", "The token must come as `Authorization: Bearer …`.")
    actor = await actor_of(store, token.strip())
    if actor is None:
        raise Refused("unauthenticated", "This token is not known here.")
    return actor
