"""What people would lose if a runner that came back took its sessions up wrongly, or left them lying."""

from __future__ import annotations

from bide.core.refusals import Unavailable
from bide.core.session import Pending
from bide.core.wire import Gone, SyncReply
from tests.runner.sessions import until
from tests.runner.shell_fakes import Shell
from tests.runner.shell_parts import SESSION


async def died_with_untold(shell: Shell) -> None:
    """A process that was in mid-turn, and had more to say than the server heard."""
    said = Pending(id="0198c0de-0000-7000-8000-0000000000a1", type="user.message", author="ann", seq=1, text="go")
    shell.grant(inputs=(said,))
    await until(lambda: shell.processes and b"hello" in shell.processes[-1].written)
    shell.processes[-1].said.put_nowait(b"ready")
    await until(lambda: "TurnStarted" in shell.server.kinds() and "CheckpointSaved" in shell.server.kinds())
    await until(lambda: not shell.loop._tasks)
    shell.server.says[SESSION] = Unavailable("the server", "away")
    shell.processes[-1].said.put_nowait(b"a last word")
    await until(lambda: "a last word" in (shell.root / ".spool" / SESSION).read_text())
    await until(lambda: not shell.loop._tasks)
    shell.loop.machine.runs.clear()  # and never again: the process is gone
    shell.processes[-1].exit()
    await until(lambda: shell.processes[-1].ended)
    shell.server.says.clear()
    shell.restart()


async def test_the_folder_is_taken_up_as_it_is_and_the_tail_is_told_before_anything_else(shell: Shell) -> None:
    await died_with_untold(shell)
    (offer,) = shell.loop.machine.adoptable()
    assert (offer.session, offer.epoch, offer.of, offer.boot) == (SESSION, 1, 1, "boot-1")
    shell.grant(2, adopted_from=1, tail_n=len(shell.server.kinds()))
    await until(lambda: len(shell.processes) == 2 and b"hello" in shell.processes[-1].written)
    assert shell.server.kinds(epoch=1)[-1] == "AssistantMessage"
    assert shell.server.kinds(epoch=2)[0] == "EnvironmentRestored"
    assert [done for done in shell.folders.done if done.startswith(("make", "take"))] == ["make 1", "take 2"]
    shell.processes[-1].said.put_nowait(b"ready")
    await until(lambda: "RuntimeResumed" in shell.server.kinds(epoch=2))


async def test_what_the_server_gave_to_another_is_put_aside_and_forgotten(shell: Shell) -> None:
    await died_with_untold(shell)
    shell.loop.synced(SyncReply(lost=(Gone(session=SESSION, epoch=1, reason="epoch 2 was granted"),)), shell.now)
    await until(lambda: "aside 1" in shell.folders.done)
    assert not (shell.root / ".spool" / SESSION).exists()
    assert shell.loop.machine.left == {}


async def test_a_lease_of_its_own_begins_from_the_checkpoint_whatever_an_earlier_process_left(shell: Shell) -> None:
    await died_with_untold(shell)
    shell.grant(3)
    await until(lambda: "make 3" in shell.folders.done)
    assert shell.folders.done.index("aside 1") == shell.folders.done.index("make 3") - 1
    await until(lambda: len(shell.processes) == 2)
    assert [line.count("a last word") for line in [(shell.root / ".spool" / SESSION).read_text()]] == [0]
