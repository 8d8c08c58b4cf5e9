"""Every "no" of bide: its code, what kind of no it is, and how the edges show it.

A refusal is for a person: a code for programs, a sentence that says what is wrong, a hint that says what to do next.
The kind fixes the HTTP status and the exit code, once, for API, CLI and client alike.
"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Why something was refused; each kind has one HTTP status and one exit code."""

    MALFORMED = "malformed"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    UNPLACEABLE = "unplaceable"
    OVER_LIMIT = "over_limit"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


HTTP_STATUS: dict[Kind, int] = {
    Kind.MALFORMED: 422,
    Kind.UNAUTHENTICATED: 401,
    Kind.FORBIDDEN: 403,
    Kind.NOT_FOUND: 404,
    Kind.CONFLICT: 409,
    Kind.UNPLACEABLE: 422,
    Kind.OVER_LIMIT: 413,
    Kind.UNREACHABLE: 503,
    Kind.TIMED_OUT: 504,
    Kind.FAILED: 500,
}

EXIT_CODE: dict[Kind, int] = {
    Kind.MALFORMED: 3,
    Kind.UNAUTHENTICATED: 5,
    Kind.FORBIDDEN: 5,
    Kind.NOT_FOUND: 4,
    Kind.CONFLICT: 3,
    Kind.UNPLACEABLE: 3,
    Kind.OVER_LIMIT: 6,
    Kind.UNREACHABLE: 7,
    Kind.TIMED_OUT: 8,
    Kind.FAILED: 1,
}

TITLE: dict[Kind, str] = {
    Kind.MALFORMED: "The request is not right",
    Kind.UNAUTHENTICATED: "Not signed in",
    Kind.FORBIDDEN: "Not allowed",
    Kind.NOT_FOUND: "Not found",
    Kind.CONFLICT: "Not now",
    Kind.UNPLACEABLE: "No runner can do this",
    Kind.OVER_LIMIT: "Over a limit",
    Kind.UNREACHABLE: "Out of reach for the moment",
    Kind.TIMED_OUT: "Took too long",
    Kind.FAILED: "Something went wrong",
}

# code -> (kind, the hint that holds when the place that refuses knows no better one)
CODES: dict[str, tuple[Kind, str]] = {
    "malformed": (Kind.MALFORMED, "Compare the request with /openapi.json."),
    "bad_id": (Kind.MALFORMED, "Copy the id from `bide ps --json`."),
    "bad_name": (Kind.MALFORMED, "Use a-z, 0-9, dot, dash and underscore."),
    "bad_value": (Kind.MALFORMED, "See `bide limits` for what is possible."),
    "bad_setting": (Kind.MALFORMED, "See `bide limits` for names and bounds."),
    "unauthenticated": (Kind.UNAUTHENTICATED, "Pass the token that `bide up` printed: --token or BIDE_TOKEN."),
    "link_used": (Kind.UNAUTHENTICATED, "`bide open` prints another."),
    "forbidden": (Kind.FORBIDDEN, "Use a token whose role allows this."),
    "no_session": (Kind.NOT_FOUND, "List the sessions with `bide ps`."),
    "no_project": (
        Kind.NOT_FOUND,
        "List them with `bide project ls`; `bide project set NAME --repository REPO` makes one.",
    ),
    "no_question": (Kind.NOT_FOUND, "List the open questions with `bide inbox`."),
    "no_runner": (Kind.NOT_FOUND, "List the runners with `bide runners`."),
    "no_drain": (Kind.NOT_FOUND, "Order it with `bide drain RUNNER`."),
    "no_blob": (Kind.NOT_FOUND, "It was deleted or never uploaded."),
    "no_input": (Kind.NOT_FOUND, "See `bide show` for those that there are."),
    "no_checkpoint": (Kind.NOT_FOUND, "See `bide show` for those that there are."),
    "no_file": (Kind.NOT_FOUND, "See what is there with `bide files SESSION`."),
    "no_output": (Kind.NOT_FOUND, "The log has its beginning and its end: `bide logs SESSION`."),
    "no_route": (Kind.NOT_FOUND, "See /openapi.json for what is here."),
    "ended": (Kind.CONFLICT, "Send it a message to go on, while its checkpoint is kept."),
    "expired": (Kind.CONFLICT, "Begin a new session with its history as recap: `bide run --recap SESSION`."),
    "checkpoint_gone": (Kind.CONFLICT, "See `bide show` for those that are kept."),
    "checkpoint_damaged": (Kind.CONFLICT, "Look at an earlier one, and run `bide fsck` to see what else is damaged."),
    "checkpoint_taken": (Kind.CONFLICT, "Another lease has saved under this name; end the runtime."),
    "other_blobs": (Kind.CONFLICT, "Mount its disk, or give --blobs as before; `bide doctor --server-only` looks."),
    "base_not_wanted": (Kind.CONFLICT, "Build upon what there is; another is wanted later."),
    "not_at_rest": (Kind.CONFLICT, "Cancel it first with `bide cancel S`."),
    "not_waiting": (Kind.CONFLICT, "Wait until the session waits, or interrupt it."),
    "already_answered": (Kind.CONFLICT, "Send what you have to say as a message."),
    "question_closed": (Kind.CONFLICT, "Send what you have to say as a message."),
    "key_reused": (Kind.CONFLICT, "Use a new idempotency key for a new input."),
    "already_delivered": (Kind.CONFLICT, "Send another message, or interrupt it."),
    "already_changing": (Kind.CONFLICT, "Look at what becomes of it with `bide show`, then try again."),
    "not_editable": (Kind.CONFLICT, "See `bide show` for what became of it."),
    "not_unconfirmed": (Kind.CONFLICT, "See `bide show` for what became of it."),
    "name_taken": (Kind.CONFLICT, "Choose another name."),
    "fenced": (Kind.CONFLICT, "Another lease was granted since; end the runtime."),
    "cursor_ahead": (Kind.CONFLICT, "Read again from the beginning: a backup was put back, and the log with it."),
    "gap": (Kind.CONFLICT, "Send again from `next`."),
    "lease_over": (Kind.CONFLICT, "Renew the lease first, then send again."),
    "wrong_protocol": (Kind.CONFLICT, "Update the older side: runner and server may be one release apart."),
    "no_runtime": (Kind.UNPLACEABLE, "Install the runtime on a runner of the pool; `bide doctor` says how."),
    "no_sandbox": (
        Kind.UNPLACEABLE,
        "Install bubblewrap, or choose --isolation none; `bide doctor` says what is missing.",
    ),
    "root_taken": (Kind.CONFLICT, "Stop the other runner, or give this one a --root of its own."),
    "no_repository": (Kind.MALFORMED, "Give a git URL or the path of a folder with a git repository."),
    "too_large": (Kind.OVER_LIMIT, "See `bide limits`."),
    "over_budget": (Kind.OVER_LIMIT, "Allow it more with `bide extend`, or answer its question with `bide inbox`."),
    "over_quota": (Kind.OVER_LIMIT, "Delete what can be made again, or raise workspace_bytes; see `bide limits`."),
    "too_many": (Kind.OVER_LIMIT, "See `bide limits`."),
    "unreachable": (Kind.UNREACHABLE, "Start it with `bide up`, or check BIDE_SERVER."),
    "store_unavailable": (Kind.UNREACHABLE, "Try again in a moment; nothing was changed."),
    "store_taken": (Kind.CONFLICT, "Stop the other server, or give this one a --data folder of its own."),
    "store_damaged": (Kind.FAILED, "Put a backup in its place; the file was left as it is."),
    "store_newer": (Kind.FAILED, "Start the newer release of bide; the file was left as it is."),
    "timed_out": (Kind.TIMED_OUT, "It goes on by itself; look again with `bide show`."),
    "failed": (Kind.FAILED, "Run `bide doctor`, then look at the server's log."),
}


class Refused(Exception):
    """The caller's request cannot be done: `code`, `sentence`, `hint`."""

    def __init__(self, code: str, sentence: str, hint: str = "", **more: object) -> None:
        self.code = code
        self.sentence = sentence
        self.kind, usual = CODES[code]
        self.hint = hint or usual
        self.more = more
        super().__init__(f"{code}: {sentence}")


class Unavailable(Exception):
    """The world's fault, not the caller's: something is away for now and worth trying again.

    `said`: the refusal that the other side gave for it, when it gave one. `plain`: why, without any address or path, so
    that whoever waits for it may be told.
    """

    def __init__(
        self, what: str, why: str, retry_after_s: float = 1.0, said: Refused | None = None, plain: str = ""
    ) -> None:
        self.what, self.why, self.retry_after_s, self.said, self.plain = what, why, retry_after_s, said, plain
        super().__init__(f"{what}: {why}")
