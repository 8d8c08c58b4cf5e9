"""What the runner says to a runtime, and what it hears, whichever runtime it is.

Drivers translate one CLI's wire into these words; the runner machine knows only these words.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a runtime can do, as data: placement, API and UI read it; nobody branches on a runtime's name."""

    resume: Literal["native", "replayed", "fresh"] = "native"
    steer: bool = False  # takes a message in the middle of a turn
    interrupt: bool = True
    queue: bool = False  # keeps a message of its own until the turn is over
    clean_tools: bool = True  # an interrupt also ends the tool's processes
    cost: bool = False
    permissions: bool = False
    native_questions: bool = False  # its own question tool is caught as ours


class Runtime(Struct, frozen=True, kw_only=True):
    """One runtime as a runner has it."""

    name: str
    version: str
    capabilities: Capabilities = Capabilities()
    problem: str = ""  # why it cannot be used here, as a sentence; empty when it can
    hint: str = ""


# -- orders: runner -> runtime ------------------------------------------------------------------------------------


class Deliver(Struct, frozen=True, tag="deliver"):
    """One message that opens a turn. `preamble` is bide's own word before the person's text."""

    input_id: str
    text: str
    preamble: str = ""


class Steer(Struct, frozen=True, tag="steer"):
    """One message for the running turn."""

    input_id: str
    text: str


class Interrupt(Struct, frozen=True, tag="interrupt"):
    """Stop the running turn; `request_id` correlates the answer."""

    request_id: str


class Close(Struct, frozen=True, tag="close"):
    """End in order, when idle."""


Order = Deliver | Steer | Interrupt | Close


GlimpseKind = Literal["text", "thought", "tool", "progress"]

# -- events: runtime -> runner ------------------------------------------------------------------------------------


class Ready(Struct, frozen=True, tag="ready"):
    """The runtime takes input. `rung` says how it got its memory back."""

    version: str
    runtime_session_id: str
    rung: Literal["new", "native", "replayed", "fresh"]
    reason: str = ""
    capabilities: Capabilities = Capabilities()
    pid: int = 0  # on the runner's host; filled in by the runner, as are:
    notes: tuple[str, ...] = ()  # what came of the resume hook


class Busy(Struct, frozen=True, tag="busy"):
    """A turn runs."""


class Consumed(Struct, frozen=True, tag="consumed"):
    """The input stands in the runtime's own durable state. `alone`: told as a steer, it began some work of its own."""

    input_id: str
    alone: bool = False


class Idle(Struct, frozen=True, tag="idle"):
    """The turn is over and nothing said to the runtime is still pending in it."""

    result: Literal["completed", "interrupted", "failed"]
    detail: str = ""
    left: tuple[str, ...] = ()  # what its tools left running, as people read it; filled in by the runner


class Spoke(Struct, frozen=True, tag="spoke"):
    """A finished block of assistant text."""

    text: str


class Thought(Struct, frozen=True, tag="thought"):
    """A finished block of reasoning text."""

    text: str


class Called(Struct, frozen=True, tag="called"):
    """A tool call; `input` is JSON text."""

    id: str
    name: str
    input: str


class Returned(Struct, frozen=True, tag="returned"):
    """A tool's result. `whole`: a file below the runtime's home that has all of it, where `output` has only a part; the
    runner has made it `file`, of `bytes` bytes, or says in `lost` why it could not.
    """

    id: str
    ok: bool
    output: str
    whole: str = ""
    file: str = ""
    bytes: int = 0
    lost: str = ""


class Glimpsed(Struct, frozen=True, tag="glimpsed"):
    """A delta or tick: shown live, never stored."""

    kind: GlimpseKind
    text: str


class Spent(Struct, frozen=True, tag="spent"):
    """Cost since the last `Spent`."""

    usd: float
    tokens: int
    model: str


class Metered(Struct, frozen=True, tag="metered"):
    """Tokens that the model was seen to take and give; the runtime's own word of what they cost comes later."""

    tokens: int


class Delayed(Struct, frozen=True, tag="delayed"):
    """The model does not want to be asked again for so long."""

    for_s: float


class Noted(Struct, frozen=True, tag="noted"):
    """Something worth a line in the timeline."""

    text: str
    code: str = ""


class Troubled(Struct, frozen=True, tag="troubled"):
    """Something went wrong in the runtime; it may go on."""

    code: str
    sentence: str
    hint: str = ""


class Unknown(Struct, frozen=True, tag="unknown"):
    """A frame the driver does not know; passed through, never fatal."""

    frame: str


class Overlong(Struct, frozen=True, tag="overlong"):
    """A line of `bytes` bytes that is too long to be read, of which `head` is the beginning.

    Filled in by the runner: `file`, where it has the whole of it, or why it has not, in `lost`.
    """

    bytes: int
    head: str
    file: str = ""
    lost: str = ""


class Asking(Struct, frozen=True, tag="asking"):
    """So many requests to the model are under way; told by the gateway."""

    open: int


class Exited(Struct, frozen=True, tag="exited"):
    """The process is gone. Never read as success or failure of a turn by its code alone."""

    reason: str
    code: int | None = None


RuntimeEvent = (
    Ready
    | Busy
    | Consumed
    | Idle
    | Spoke
    | Thought
    | Called
    | Returned
    | Glimpsed
    | Spent
    | Metered
    | Delayed
    | Noted
    | Troubled
    | Unknown
    | Asking
    | Overlong
    | Exited
)
