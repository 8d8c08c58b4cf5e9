"""How a Claude Code process is started: argv, the whole environment, and the files beside it.

A repository must not be able to redirect the model, start commands or add servers, so its own settings are not read
(`--setting-sources user`, `--strict-mcp-config`), and its CLAUDE.md comes by `--add-dir` alone. Nothing secret stands in
argv or in the environment, which every tool inherits: the token lies in a private file that a helper prints.
"""

from __future__ import annotations

import shlex
import uuid
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from bide.core.runtime import Capabilities
from bide.drivers.base import File, Job, Launch, Places
from bide.drivers.claude_code import transcript

CAPABILITIES = Capabilities(resume="native", steer=True, interrupt=True, queue=True, clean_tools=True, cost=True)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KEPT_DAYS = 36500  # the CLI deletes conversations by age at start; keeping is bide's business

# Its own questions go by `ask_human`; plans, worktrees, clocks and talk between sessions make no sense under parking.
DISALLOWED = (
    "AskUserQuestion,EnterPlanMode,ExitPlanMode,EnterWorktree,ExitWorktree,CronCreate,CronDelete,CronList,"
    "ScheduleWakeup,Monitor,ListAgents,SendMessage,Workflow,ReportFindings"
)
_FLAGS = (
    "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
    "--replay-user-messages", "--include-partial-messages", "--session-mirror",
    "--dangerously-skip-permissions", "--permission-prompts", "none",
    "--setting-sources", "user", "--strict-mcp-config", "--disallowedTools", DISALLOWED,
    "--system-prompt-snapshot", "off",
)  # fmt: skip
_SWITCHES = {
    "CLAUDE_CODE_PROJECT_DIR_NAME": transcript.PROJECT,
    "IS_SANDBOX": "1",  # else root refuses to skip permissions
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    "CLAUDE_CODE_RESUME_INTERRUPTED_TURN": "0",  # it would run a broken-off call again without saying so
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1",
    "CLAUDE_CODE_STARTUP_FAILURE_RESULTS": "1",
    "CLAUDE_CODE_MAX_RETRIES": "6",  # some 40 s: longer outages are waited out by bide, with no turn open
}


class Start(Struct, frozen=True, kw_only=True):
    """One decided start: the conversation it goes on with, how, and what that conversation holds."""

    launch: Launch
    runtime_session_id: str
    rung: Literal["new", "native", "fresh"]
    reason: str = ""
    inputs: frozenset[str] = frozenset()


def decide(job: Job, binary: str) -> Start:
    """How this job starts, from what stands on disk: the CLI refuses `--resume` without a conversation and a new one
    under the name of an old file, so the flag follows the file."""
    memory = transcript.read(job.home_on_host, job.runtime_session_id)
    if memory.found:
        launch = _launch(job, binary, f"--resume={job.runtime_session_id}")
        return Start(launch=launch, runtime_session_id=job.runtime_session_id, rung="native", inputs=memory.inputs)
    chosen = _free(job.home_on_host, job.runtime_session_id)
    return Start(
        launch=_launch(job, binary, f"--session-id={chosen}"),
        runtime_session_id=chosen,
        rung="fresh" if memory.problem else "new",
        reason=memory.problem,
    )


def _free(home: Path, runtime_session_id: str) -> str:
    """The id itself, or when an unusable file bears its name one made from it, equal on every runner."""
    chosen, n = runtime_session_id, 0
    while (path := home / transcript.place(chosen)).exists() or path.is_symlink():
        n += 1
        chosen = str(uuid.uuid5(uuid.NAMESPACE_OID, f"bide/{runtime_session_id}/{n}"))
    return chosen


def _launch(job: Job, binary: str, conversation: str) -> Launch:
    state = job.places.state
    argv = [
        binary, *_FLAGS, "--mcp-config", f"{state}/mcp.json", "--settings", f"{state}/settings.json",
        "--add-dir", job.places.workspace,
    ]  # fmt: skip
    if job.instructions:
        argv.append(f"--append-system-prompt={job.instructions}")
    if job.model:
        argv.append(f"--model={job.model}")
    # The "=" keeps a value from ever being read as a flag.
    return Launch(
        argv=(*argv, conversation), env=_env(job.places, job.gateway), files=_files(job),
        ends_turn={"claude/endTurn": True}, call_key="claudecode/toolUseId",
    )  # fmt: skip


def _env(places: Places, gateway: str) -> dict[str, str]:
    return {
        **_SWITCHES,
        "PATH": f"{places.home}/.local/bin:{PATH}",
        "LANG": "C.UTF-8",
        "HOME": places.home,
        "TMPDIR": places.tmp,
        "CLAUDE_CODE_TMPDIR": places.tmp,
        "XDG_RUNTIME_DIR": f"{places.state}/run",
        "CLAUDE_CONFIG_DIR": f"{places.home}/{transcript.CONFIG}",
        "ANTHROPIC_BASE_URL": f"{gateway}/model",
    }


def _files(job: Job) -> tuple[File, ...]:
    state = job.places.state
    settings = {
        "apiKeyHelper": f"{state}/apikey.sh",
        "cleanupPeriodDays": KEPT_DAYS,
        "includeCoAuthoredBy": False,
    }
    server = {
        "type": "http",
        "url": f"{job.gateway}/mcp",
        "headers": {"Authorization": f"Bearer {job.token}"},
        "alwaysLoad": True,  # else the tools hide behind a search
    }
    shows_token = f"#!/bin/sh\nexec cat {shlex.quote(f'{state}/token')}\n"
    return (
        File(path=f"{state}/token", content=job.token.encode()),
        File(path=f"{state}/apikey.sh", content=shows_token.encode(), mode=0o700),
        File(path=f"{state}/settings.json", content=_json(settings)),
        File(path=f"{state}/mcp.json", content=_json({"mcpServers": {"bide": server}})),
        File(path=f"{state}/run/.keep", content=b""),  # the folder for its sockets has to be there
    )


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
