"""The decision: (session, command, now) becomes facts, or a refusal. Nothing else decides anything about a session."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from bide.core import commands as c
from bide.core import facts as f
from bide.core import ids
from bide.core.branching import go_back_if_asked
from bide.core.draft import Draft
from bide.core.flags import flag
from bide.core.holding import try_again
from bide.core.inputs import accept, check_text
from bide.core.keeping import time_passes
from bide.core.lease import adopt, disown, grant, renew
from bide.core.limits import RETRY_PARK_S
from bide.core.recovery import end, forfeit, give_up, park, settle_controls
from bide.core.refusals import Refused
from bide.core.report import report
from bide.core.session import Lifecycle, Session, rewinding, tries_at


def decide(
    session_id: str, s: Session | None, command: c.Command, now: float, saves: tuple[f.Checkpoint, ...] = ()
) -> Draft:
    """The draft of what the command leads to; its envelopes may be none. Raises `Refused`.

    `saves` are the checkpoints ever saved of the session, for commands about them and while it rewinds.
    """
    d = Draft(session_id, s, now, saves)
    if isinstance(command, c.Create):
        if s is None:
            _create(d, command)
        return d
    if s is None:
        raise Refused("no_session", f"There is no session {session_id}.")
    match command:
        case (
            c.Say() | c.Interrupt() | c.Answer() | c.Cancel() | c.Park() | c.Resume() | c.Extend() | c.Fork()
            | c.Rewind() | c.Edit() | c.Withdraw() | c.Resolve()
        ):  # fmt: skip
            accept(d, command)
        case c.Grant():
            grant(d, command)
        case c.Renew():
            renew(d, command)
        case c.Adopt():
            adopt(d, command)
        case c.Disown():
            disown(d, command)
        case c.Report():
            report(d, command)
        case c.Flag():
            flag(d, command)
        case c.Wake():
            _wake(d, command)
        case _:
            assert_never(command)
    go_back_if_asked(d)
    return d


def _create(d: Draft, command: c.Create) -> None:
    d.add(
        f.Created(
            project=command.project,
            runtime=command.runtime,
            title=command.title,
            ticket=command.ticket,
            pool=command.pool,
            repository=command.repository,
            branch=command.branch,
            model=command.model,
            runtime_session_id=ids.mint(d.now, d.session_id, "runtime"),
            environment_id=ids.mint(d.now, d.session_id, "environment", 0),
            author=command.author,
            limits=command.limits,
            on_loss=command.on_loss,
            on_rollback=command.on_rollback,
            labels=command.labels,
            care=command.care,
        ),
        actor=command.author,
    )
    check_text(d, command.prompt, "task")
    d.add(f.UserMessage(id=command.input_id, text=command.prompt), actor=command.author)
    d.add(f.Queued(reason="new"))


def _wake(d: Draft, command: c.Wake) -> None:
    s, now = d.s, d.now
    if now > command.good_until:
        return
    if s.lease is not None:
        if now >= max(s.lease.until, command.outage_until):
            _lease_over(d)
        elif s.phase_until and now >= max(s.phase_until, command.outage_until):
            _phase_over(d)
        elif 0 < tries_at(s) <= now:
            try_again(d)
        elif s.window_until and now >= s.window_until and not s.turn.open:
            window = s.limits["online_window_s"]
            d.add(f.Parking(reason=f"it waited for {s.turn.waiting_for} longer than {window:g} s"))
    elif s.lifecycle is Lifecycle.QUEUED and s.recovery_until and now >= max(s.recovery_until, command.outage_until):
        give_up(d, s.reason or "its runner did not come back")
    elif 0 < tries_at(s) <= now:
        try_again(d)
    else:
        time_passes(d, command.outage_until)


def _lease_over(d: Draft) -> None:
    s = d.s
    assert s.lease is not None
    reason = f"runner {s.lease.runner_name} is out of contact"
    d.add(f.Interrupted(reason=reason, runner=s.lease.runner_name, held_until=s.lease.until))
    if s.cancelling:
        forfeit(d, reason)
        end(d, "cancelled", "Cancelled while its runner was out of contact; the last checkpoint is what is kept.")


def _phase_over(d: Draft) -> None:
    """A transitional state that lasted too long is left, with the reason."""
    s = d.s
    assert s.lease is not None
    runner = s.lease.runner_name
    if s.cancelling:
        reason = f"runner {runner} did not stop in time"
        d.add(f.Interrupted(reason=reason, runner=runner, held_until=s.lease.until, revoked=True))
        forfeit(d, reason)
        end(d, "cancelled", "Cancelled; its runner did not stop in time, so the last checkpoint is what is kept.")
    elif rewinding(s):
        too_much = f"its workspace on runner {runner} holds more than can be saved"
        reason = too_much if s.too_much else f"runner {runner} did not stop and save in time"
        d.add(f.Interrupted(reason=reason, runner=runner, held_until=s.lease.until, revoked=True))
        forfeit(d, reason)
        park(d, reason)
    elif s.parking:
        reason = "Saving took too long; the session stays with its runner and is parked later."
        d.add(f.CheckpointFailed(code="parking_stalled", reason=reason, retry_at=d.now + RETRY_PARK_S))
        settle_controls(d, {"user.resume": "it goes on"})
    else:
        reason = "the start took too long"
        d.add(f.Interrupted(reason=reason, runner=runner, held_until=s.lease.until, revoked=True))


def moved(s: Session, until: float) -> Session:
    """The session with its lease prolonged: bookkeeping without a fact."""
    assert s.lease is not None
    return replace(s, lease=replace(s.lease, until=max(until, s.lease.until)))
