"""What server and runner say to each other, and the protocol's version. One release apart works, older is refused."""

from __future__ import annotations

from msgspec import Raw, Struct

from bide.core.facts import Care, Checkpoint, RunnerFact
from bide.core.refusals import Refused
from bide.core.runtime import GlimpseKind, Runtime
from bide.core.session import Pending

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})  # hosts that no proxy and no other machine can reach
ISOLATIONS = frozenset({"bwrap", "unshare", "none"})
PROTOCOL = 2  # 1: no adoption, no drain by the server
PROTOCOL_OLDEST = PROTOCOL - 1  # one release apart works both ways


class Register(Struct, frozen=True, kw_only=True):
    """`POST /v1/runners`: who the runner is and what it has. Asking again with the same name renews it.

    `boot` names the runner's process; a later process of the same runner has a greater one (ids are time-ordered).
    `home` names the folder that it holds for itself: of two processes there the earlier one has ended.
    """

    name: str
    pool: str = "default"
    slots: int = 1
    root: str = ""
    isolation: str = "none"
    runtimes: tuple[Runtime, ...] = ()
    labels: tuple[str, ...] = ()
    protocol: int = PROTOCOL
    boot: str = ""
    home: str = ""  # empty: an older runner does not say


class Registered(Struct, frozen=True, kw_only=True):
    """The runner's id, and the token it uses from now on."""

    id: str
    token: str
    protocol: int = PROTOCOL


class Held(Struct, frozen=True, kw_only=True):
    """One lease as its holder sees it: what it has heard so far."""

    session: str
    epoch: int
    cursor: int = 0  # seq of the newest input it knows
    parking: bool = False
    cancelling: bool = False
    held: int = 0  # it holds back what is to begin the turn of this number; 0: nothing
    walls: tuple[float, float] | None = None  # what it may cost, as far as its holder knows: USD and seconds of work


class Adoptable(Struct, frozen=True, kw_only=True):
    """A session that an earlier process of the runner held, with its folder as `epoch` left it.

    `boot` names that process; `of` is the epoch whose last facts wait to be told.
    """

    session: str
    epoch: int
    of: int
    boot: str


class Returned(Struct, frozen=True, kw_only=True):
    """A lease that its runner cannot make use of, and why; nothing of the session runs there."""

    session: str
    epoch: int
    reason: str


class Sync(Struct, frozen=True, kw_only=True):
    """Heartbeat, renewal, claim and news in one idempotent question; the server may wait `wait_s` for news."""

    protocol: int = PROTOCOL
    boot: str = ""
    leases: tuple[Held, ...] = ()
    free_slots: int = 0
    wait_s: float = 0.0
    adopt: tuple[Adoptable, ...] = ()
    returned: tuple[Returned, ...] = ()
    disk_free: int = 0  # bytes where the workspaces are; 0: not said
    draining: bool = False
    ordered: bool = False  # it drains because the server said so
    leaving: bool = False  # the last word of a process that ends in order: give it nothing more
    warm: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()  # sessions at rest of which anything lies on its disk


class Job(Struct, frozen=True, kw_only=True):
    """All that a runner needs to bring a session to life."""

    project: str
    runtime: str
    runtime_session_id: str
    model: str
    repository: str
    branch: str
    environment_id: str
    checkpoint: Checkpoint | None  # None: a fresh workspace
    inputs: tuple[Pending, ...]
    cursor: int
    turn: int
    blocking: tuple[str, ...]  # open questions that block
    report: tuple[str, ...]  # what the coding agent is told with its next prompt
    limits: dict[str, float]
    resumed: bool  # it has run before
    care: Care = Care()
    checkpoint_n: int = 0  # the highest ever used; 0: an older server does not say
    usd: float = 0.0  # what it has cost so far, as are:
    tokens: int = 0
    worked_s: float = 0.0
    freed: int | None = None  # as in `News`; None: an older server, which knows nothing of holding


class Granted(Struct, frozen=True, kw_only=True):
    """A lease. The runner counts `ttl_s` from when it asked, and stops `margin_s` before its end."""

    session: str
    epoch: int
    ttl_s: float
    margin_s: float
    job: Job
    adopted_from: int = 0  # the folder is to be taken up as it is; first the facts of this epoch are told
    tail_n: int = 0  # from this one on


class Renewed(Struct, frozen=True, kw_only=True):
    """The lease goes on, counted from when the runner asked."""

    session: str
    epoch: int
    ttl_s: float
    margin_s: float


class Gone(Struct, frozen=True, kw_only=True):
    """The runner does not hold this any more: end the runtime."""

    session: str
    epoch: int
    reason: str


class News(Struct, frozen=True, kw_only=True):
    """What is new for one leased session: inputs past the reported cursor, and whether it parks or is to stop.

    `cancelling`: stop whatever it does, save, say the last word. What becomes of it then, its end or a step back to a
    checkpoint, is the server's to know. Turns up to the number `freed` may begin,
    should they be held back.
    """

    session: str
    epoch: int
    parking: str = ""
    cancelling: bool = False
    inputs: tuple[Pending, ...] = ()
    cursor: int = 0
    freed: int = 0
    walls: tuple[float, float] | None = None  # as in `Held`


class SyncReply(Struct, frozen=True, kw_only=True):
    """The answer to `Sync`."""

    protocol: int = PROTOCOL
    grants: tuple[Granted, ...] = ()
    renewed: tuple[Renewed, ...] = ()
    lost: tuple[Gone, ...] = ()
    commands: tuple[News, ...] = ()
    drain: bool = False  # wanted for as long as it is said
    drain_s: float = 0.0  # how long working sessions may still take
    forget: tuple[str, ...] = ()  # of those it keeps: sessions that were deleted; nothing of them may stay there


class FactsPost(Struct, frozen=True, kw_only=True):
    """`POST /v1/runners/{r}/facts`. `of` names the adopted epoch where they are the last facts of that one. `lost`: the
    server has lost so many facts before `first` that it had acknowledged, and the runner has them no more.
    """

    session: str
    epoch: int
    first: int
    facts: tuple[RunnerFact, ...]
    of: int = 0
    lost: int = 0


class FactsTold(Struct, frozen=True, kw_only=True):
    """`FactsPost` as a server reads it: each fact by itself, so that one that cannot be read costs no other."""

    session: str
    epoch: int
    first: int
    facts: tuple[Raw, ...]
    of: int = 0
    lost: int = 0


class Glimpse(Struct, frozen=True, kw_only=True):
    """Words of a runtime as it works: shown to who watches at this moment, kept by nobody. `n`: the number that the next
    fact of that epoch has; once it is told, what was glimpsed before says nothing new.
    """

    session: str
    epoch: int
    n: int
    turn: int
    kind: GlimpseKind
    text: str


class GlimpsesPost(Struct, frozen=True, kw_only=True):
    """`POST /v1/runners/{r}/glimpses`: may get lost, and is never said again."""

    glimpses: tuple[Glimpse, ...]


class GlimpsesReply(Struct, frozen=True, kw_only=True):
    """Of the sessions, those that somebody watches."""

    watched: tuple[str, ...] = ()


class FactsReply(Struct, frozen=True, kw_only=True):
    """All facts before `next` are stored."""

    next: int


def agree(protocol: int) -> None:
    """Refuses a peer that is too old or too new, in a sentence."""
    if not PROTOCOL_OLDEST <= protocol <= PROTOCOL + 1:
        older = "runner" if protocol < PROTOCOL else "server"
        raise Refused(
            "wrong_protocol",
            f"The runner speaks protocol {protocol}, this server {PROTOCOL_OLDEST} to {PROTOCOL + 1}.",
            f"Update the {older}: runner and server may be one release apart.",
        )
