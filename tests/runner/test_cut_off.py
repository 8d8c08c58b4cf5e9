"""What people would lose if work that is called off, or cut off, held its runner or was begun again for nothing."""

from __future__ import annotations

import pytest

from bide.core import facts as f
from bide.core.refusals import Unavailable
from bide.core.session import Pending
from bide.core.wire import News, SyncReply
from tests.runner.sessions import until
from tests.runner.shell_fakes import Shell
from tests.runner.shell_parts import SESSION


async def test_a_cancel_of_a_session_whose_blobs_are_out_of_reach_frees_its_runner_at_once(shell: Shell) -> None:
    shell.folders.make_fails = [Unavailable("the blob store", "away") for _ in range(10_000)]
    shell.grant()
    await until(lambda: len(shell.folders.make_fails) < 9_999)
    news = News(session=SESSION, epoch=1, cancelling=True)
    shell.loop.synced(SyncReply(commands=(news,)), shell.now)
    await until(lambda: shell.empty)
    assert shell.server.kinds()[-1] == "Ended"


@pytest.mark.parametrize("how", ["raises", "says so"])
async def test_a_state_that_cannot_be_read_after_a_crash_leaves_the_message_in_doubt_and_the_session_at_rest(
    shell: Shell, how: str
) -> None:
    shell.driver.breaks = "memory" if how == "raises" else ""
    shell.driver.problem = "It cannot be read." if how == "says so" else ""
    shell.grant(inputs=(Pending(id=f"{SESSION[:-1]}a", type="user.message", author="ann", seq=1, text="go"),))
    await until(lambda: shell.processes)
    shell.processes[0].said.put_nowait(b"ready")
    shell.processes[0].said.put_nowait(b"")
    await until(lambda: len(shell.processes) == 2)
    shell.processes[1].said.put_nowait(b"ready")
    shell.processes[1].said.put_nowait(b"")
    await until(lambda: shell.server.kinds().count("RuntimeExited") == 2)
    receipts = [fact.status for fact in shell.server.facts[f"{SESSION} 1"] if isinstance(fact, f.Receipt)]
    assert receipts[-1] == "unconfirmed"
    assert len(shell.processes) == 2, "it is not started again for nothing"
