"""What people would lose if a runtime could not be ended, frozen, fed or read as it should."""

import asyncio
import os
import resource
import secrets
import signal
import stat
import threading
import time
from pathlib import Path

import pytest

from bide.core import limits
from bide.core.refusals import Refused
from bide.drivers.base import File, Launch
from bide.runner import procfs, sandbox
from bide.runner.layout import Layout, lock_root
from bide.runner.process import spawn
from bide.runner.sandbox import Choice
from bide.runner.shim import children as children_of
from bide.runner.sweep import lives, record_path, sweep
from tests.runner.sessions import (
    NOT_HERE,
    SHELL,
    SHUT_IN,
    WORKS,
    lone_runner,
    output,
    poll,
    processes_saying,
    read_all,
    session,
    until,
)

every_rung = pytest.mark.parametrize("choice", WORKS.values(), ids=WORKS)

# everything a tool may do to outlive its session; $1 stands in each command line
ESCAPES = """
hold="trap '' TERM HUP INT; while :; do sleep 50; done"
setsid -f sh -c "$hold" "$1-daemon"
nohup sh -c "$hold" "$1-nohup" >/dev/null 2>&1 &
( ( sh -c "$hold" "$1-twice" & ) & )
env -i /usr/bin/setsid -f /bin/sh -c "$hold" "$1-bare"
setsid -f sh -c 'while :; do setsid -f true "$0"; sleep 0.01; done' "$1-spawner"
"""
STUBBORN = ESCAPES + "trap '' TERM\necho up\nwhile :; do sleep 1; done"
NAMES = ("daemon", "nohup", "twice", "bare", "spawner")


async def heard(process: object, what: bytes) -> None:
    """Reads stdout until it said this."""
    async for chunk in process.stdout():  # type: ignore[attr-defined]
        if what in chunk:
            return


def all_up(word: str) -> bool:
    return all(processes_saying(f"{word}-{name}") for name in NAMES)


@every_rung
async def test_no_tool_outlives_the_end_of_its_session(
    choice: Choice, root: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TERM_S", 0.2)
    async with session(choice, root, STUBBORN, "one", word) as process:
        await heard(process, b"up")
        await until(lambda: all_up(word))
        began = time.monotonic()
        ended = await process.end(0.1)
        assert (ended.reason, ended.code, ended.survivors) == ("killed", 137, ())
        assert time.monotonic() - began < 3
        assert processes_saying(word) == []
        assert sweep(root) == ()


@every_rung
async def test_background_processes_end_when_the_runtime_leaves_by_itself(
    choice: Choice, root: Path, word: str
) -> None:
    async with session(choice, root, ESCAPES + "cat >/dev/null; exit 7", "one", word) as process:
        await until(lambda: all_up(word))
        ended = await process.end()
        assert (ended.reason, ended.code) == ("closed", 7)
        assert processes_saying(word) == []


@every_rung
async def test_a_runtime_is_asked_with_term_before_it_is_killed(choice: Choice, root: Path) -> None:
    script = "trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.01; done"
    async with session(choice, root, script) as process:
        stdout = process.stdout()
        await heard(process, b"up")
        ended = await process.end(0.05)
        assert (ended.reason, ended.code) == ("terminated", 3)
        assert b"".join([chunk async for chunk in stdout]) == b"saved\n"
        assert (await process.end()).reason == "exited"


@every_rung
def test_everything_dies_with_a_runner_that_is_killed(choice: Choice, root: Path, word: str) -> None:
    with lone_runner(root, choice.rung, STUBBORN, word) as runner:
        assert runner.stdout
        assert runner.stdout.readline().startswith("up ")
        poll(lambda: all_up(word))
    poll(lambda: not processes_saying(word), 5)
    lock_root(root).release()
    sweep(root)
    assert not list(root.glob(".live/*"))


def test_a_root_that_is_a_file_or_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/self/root-of-a-runner")):
        with pytest.raises(Refused, match="bad_setting") as refused:
            lock_root(root)
        assert str(root) in refused.value.sentence


@pytest.mark.skipif("none" not in WORKS, reason="sessions need a sandbox here")
def test_a_new_runner_ends_what_a_crash_left_alive(root: Path, word: str) -> None:
    with lone_runner(root, "none", STUBBORN, word) as runner:
        assert runner.stdout
        shim = int(runner.stdout.readline().split()[1])
        poll(lambda: all_up(word))
        with pytest.raises(Refused, match="root_taken"):
            lock_root(root)
        os.kill(shim, signal.SIGSTOP)  # so that it cannot tidy up
    os.kill(shim, signal.SIGKILL)
    poll(lambda: not procfs.alive(procfs.ident(shim)))
    assert processes_saying(f"{word}-daemon")
    assert sweep(root) == ("one",)
    left = {Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[3].decode() for pid in processes_saying(word)}
    # without a namespace and without its environment nothing tells this one from a stranger's
    assert left <= {f"{word}-bare"}
    for pid in processes_saying(word):
        os.kill(pid, signal.SIGKILL)


@every_rung
async def test_a_frozen_session_writes_nothing_and_goes_on_after_a_thaw(choice: Choice, root: Path) -> None:
    script = """
    for n in 1 2 3; do setsid -f sh -c 'while :; do date +%N >>ticks-$0; done' $n; done
    while :; do ( date +%N >>ticks-0 ); done
    """
    async with session(choice, root, script) as process:
        work = Layout(root, "one").workspace
        files = [work / f"ticks-{n}" for n in range(4)]

        def sizes() -> list[int]:
            return [file.stat().st_size for file in files if file.exists()]

        await until(lambda: len(sizes()) == 4)
        for _ in range(3):
            began = time.monotonic()
            assert await process.freeze()
            assert time.monotonic() - began < 2
            before = sizes()
            await asyncio.sleep(0.1)  # long enough for hundreds of lines
            assert sizes() == before
            await process.thaw()
            await until(lambda before=before: all(a > b for a, b in zip(sizes(), before, strict=True)))  # type: ignore[misc]
        assert await process.freeze()
        before = sizes()
        assert (await process.end()).reason == "killed"
        assert sizes() == before


@every_rung
async def test_a_job_the_session_had_stopped_itself_is_not_continued_by_a_thaw(choice: Choice, root: Path) -> None:
    script = "sh -c 'kill -STOP $$; echo woke >woke' & echo $! ; cat"
    async with session(choice, root, script) as process:
        await heard(process, b"\n")

        def stopped() -> int:
            return sum(procfs.state(each) == "T" for each in process._members())

        await until(lambda: stopped() == 1)
        assert await process.freeze()
        await process.thaw()
        await until(lambda: stopped() == 1)
        assert not (Layout(root, "one").workspace / "woke").exists()


@every_rung
async def test_a_hundred_megabytes_without_a_newline_pass_in_bounded_memory(choice: Choice, root: Path) -> None:
    size = 100 * 1024 * 1024
    script = f"head -c {size} /dev/zero; head -c 5000000 /dev/zero >&2"
    before, seen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    async with session(choice, root, script) as process:
        async for chunk in process.stdout():
            seen += len(chunk)
        assert await process.wait() == 0
        assert len(process.stderr_tail) == limits.STDERR_TAIL_BYTES
    assert seen == size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024  # KiB


@every_rung
async def test_a_runtime_nobody_reads_from_can_still_be_ended(choice: Choice, root: Path) -> None:
    async with session(choice, root, "cat /dev/zero") as process:
        assert (await process.end(0.1)).reason == "terminated"


@every_rung
async def test_what_is_written_to_a_runtime_arrives_byte_for_byte(choice: Choice, root: Path) -> None:
    sent = secrets.token_bytes(300_000) + b"\0\xff\n"
    async with session(choice, root, "cat") as process:
        process.write(sent[:1000])
        process.write(sent[1000:])
        process.close_stdin()
        assert b"".join([chunk async for chunk in process.stdout()]) == sent
        await process.wait()
        process.write(b"too late")


@every_rung
async def test_the_environment_holds_what_was_asked_and_nothing_of_the_runner(
    choice: Choice, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDE_TEST_SECRET", "of the runner")
    odd = {"ODD": "a\n'b' \"$c\" `d` \\ \n\n", "LATE": "é\udcff", "EMPTY": "", "PATH": "/usr/bin:/bin"}
    said = await output(choice, root, "exec env -0", env=odd)
    found = dict(pair.split("=", 1) for pair in said.split("\0") if pair)
    assert {name: found[name] for name in odd} == {**odd, "LATE": "é\ufffd"}
    usual = {"HOME", "TMPDIR", "XDG_RUNTIME_DIR", "USER", "LOGNAME", "SHELL", "LANG", "TERM"}
    assert found.keys() - odd.keys() - usual <= {"BIDE_MARK", "BIDE_SESSION", "PWD", "OLDPWD", "SHLVL", "_"}


@every_rung
async def test_the_files_of_a_launch_are_the_sessions_own_and_closed_to_others(choice: Choice, root: Path) -> None:
    layout = Layout(root, "one")
    places = layout.places(choice.stable_paths)
    files = [
        File(path=f"{places.state}/mcp.json", content=b"token\n"),
        File(path=f"{places.home}/.runtime/deep/settings.json", content=b"settings\n", mode=0o644),
    ]
    script = 'for f; do cat "$f"; : >>"$f"; ls -ld "$f" | cut -c1-10; done'
    said = await output(choice, root, script, "one", *[file.path for file in files], files=files)
    assert said == "token\n-rw-------\nsettings\n-rw-r--r--\n"
    assert stat.S_IMODE(layout.home.joinpath(".runtime").stat().st_mode) == 0o700
    assert layout.state.joinpath("mcp.json").stat().st_uid == choice.uid_outside


@every_rung
async def test_a_file_of_a_launch_cannot_be_led_out_of_the_session(choice: Choice, root: Path) -> None:
    layout = Layout(root, "one")
    places = layout.places(choice.stable_paths)
    layout.create(choice.uid_outside)
    for path in (f"{places.workspace}/x", f"{places.home}/../x", "/etc/x", "x", places.home, f"{places.home}er/x"):
        launch = Launch(argv=("/bin/sh",), env={}, files=(File(path=path, content=b"x"),))
        with pytest.raises(Refused, match="bad_value"):
            await spawn(choice, layout, launch, SHELL)
    outside = root / "outside"
    outside.mkdir()
    outside.joinpath("theirs").write_text("theirs")
    layout.home.joinpath("link").symlink_to(outside)
    layout.home.joinpath("file").symlink_to(outside / "theirs")
    with pytest.raises(Refused, match="failed"):
        layout.write([File(path=f"{places.home}/link/x", content=b"x")], stable_paths=choice.stable_paths, uid=0)
    ours = File(path=f"{places.home}/file", content=b"ours")
    layout.write([ours], stable_paths=choice.stable_paths, uid=choice.uid_outside)
    assert layout.home.joinpath("file").read_text() == "ours"
    assert [file.read_text() for file in outside.iterdir()] == ["theirs"]
    layout.tmp.rmdir()
    layout.tmp.symlink_to(outside)
    with pytest.raises(Refused, match="cannot be made"):
        layout.create(choice.uid_outside)


@every_rung
async def test_what_was_running_is_told_with_its_port_and_without_its_secrets(choice: Choice, root: Path) -> None:
    serve = """
import http.server, socketserver
with socketserver.TCPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""
    script = f"""
    mkdir -p site; cd site
    setsid -f python3 -c '{serve}' --token hush-hush --url=http://me:pw@example.com API_KEY=hush
    cat >/dev/null
    """
    async with session(choice, root, script) as process:
        port = int(await anext(process.stdout()))
        found = process.running()[0]
        assert found.ports == (port,)
        assert found.cwd == layout_place(choice, root) + "/site"
        assert found.argv[0] == "python3"
        assert found.argv[3:] == ("--token", "***", "--url=http://***@example.com", "API_KEY=***")
        assert all("cat >/dev/null" not in one.argv for one in process.running())  # the runtime itself is not told


def layout_place(choice: Choice, root: Path) -> str:
    return Layout(root, "one").places(choice.stable_paths).workspace


@every_rung
async def test_a_session_never_gets_a_second_runtime_beside_a_living_one(choice: Choice, root: Path) -> None:
    async with session(choice, root, "cat") as first:
        with pytest.raises(Refused, match="still lives"):
            await spawn(choice, Layout(root, "one"), Launch(argv=("/bin/sh",), env={}), SHELL)
        assert not first.ended
        await first.end()
    assert await output(choice, root, "echo again") == "again\n"


@every_rung
async def test_orphans_are_reaped_while_the_session_lives(choice: Choice, root: Path) -> None:
    async with session(choice, root, "for n in 1 2 3 4 5; do setsid -f true; done; echo up; cat") as process:
        await heard(process, b"up")
        await until(lambda: not process.running() or all("true" not in one.argv for one in process.running()))
        parent = process.init
        assert parent
        await until(
            lambda: "Z" not in [procfs.state(one) for pid in children_of(parent.pid) if (one := procfs.ident(pid))]
        )


@pytest.mark.parametrize("choice", [WORKS[rung] for rung in SHUT_IN], ids=SHUT_IN)
async def test_a_sandbox_that_cannot_start_says_why(
    choice: Choice, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bwrap", "unshare", "setpriv"):
        broken = root / name
        broken.write_text("#!/bin/sh\necho no luck today >&2; exit 1\n")
        broken.chmod(0o755)
    monkeypatch.setitem(sandbox.SCRUBBED, "PATH", str(root))
    with pytest.raises(Refused, match="no luck today"):
        await spawn(choice, Layout(root, "one"), Launch(argv=("/bin/sh",), env={}), SHELL)
    assert not lives(record_path(root, "one"))


@every_rung
async def test_a_runtime_that_does_not_exist_is_an_exit_with_its_reason(choice: Choice, root: Path) -> None:
    process = await spawn(choice, Layout(root, "one"), Launch(argv=("/nowhere/at-all",), env={}), SHELL)
    assert await read_all(process) != ""
    assert await process.wait() == 127
    assert "/nowhere/at-all" in process.stderr_tail


def test_the_rungs_tried_here_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nsandbox rungs exercised: {', '.join(WORKS)}; not here: {NOT_HERE or 'none'}")
    assert WORKS


@every_rung
async def test_a_session_is_ended_while_others_conversations_take_long_to_read(choice: Choice, root: Path) -> None:
    may_go_on = threading.Event()
    async with session(choice, root, "echo up; while :; do sleep 1; done") as process:
        await heard(process, b"up")
        busy = [asyncio.create_task(asyncio.to_thread(may_go_on.wait)) for _ in range(100)]
        try:
            assert (await asyncio.wait_for(process.kill(), 10)).survivors == ()
        finally:
            may_go_on.set()
            await asyncio.gather(*busy)
