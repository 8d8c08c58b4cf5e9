"""The Claude Code driver: where the binary is, whether it can be used, and what a checkpoint carries of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from bide.core import limits
from bide.core.refusals import Refused
from bide.core.runtime import Runtime
from bide.drivers.base import Carried, Dialogue, Job, Memory
from bide.drivers.claude_code import launch, transcript
from bide.drivers.claude_code.dialogue import ClaudeDialogue

CARRIER = "claude_agent_sdk"  # the package that brings the binary by pip; it is never imported
OLDEST = (2, 1, 332)  # the first release that was seen to give receipts for interrupts and for each message
HINT = "Install it with `pip install 'bide[claude]'`."


class ClaudeCode:
    """See `bide.drivers.base.Driver`."""

    name = "claude_code"

    def binary(self) -> str:
        """Path of the executable: the one of `bide[claude]`, else `claude` on PATH; else `Refused('no_runtime')`."""
        carrier = find_spec(CARRIER)
        for folder in (carrier and carrier.submodule_search_locations) or ():
            bundled = Path(folder) / "_bundled" / "claude"
            if bundled.is_file():
                return str(bundled)
        found = shutil.which("claude")
        if not found:
            raise Refused("no_runtime", "Claude Code is not installed here.", HINT)
        return found

    def probe(self, env: dict[str, str]) -> Runtime:
        """Runs `--version`. Never raises for a binary that is missing, broken or too old: it says so."""
        try:
            binary = self.binary()
        except Refused as refused:
            return self._problem("", refused.sentence, refused.hint)
        try:
            done = subprocess.run(
                [binary, "--version"], env=env, capture_output=True, timeout=limits.PROBE_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return self._problem("", f"Claude Code did not tell its version within {limits.PROBE_S:g} s.", HINT)
        except OSError as error:
            return self._problem("", f"Claude Code cannot be run here: {error.strerror}.", HINT)
        said = done.stdout.decode("utf-8", "replace")
        version = re.match(r"\s*((\d+)\.(\d+)\.(\d+)\S*)", said)
        if not version:
            why = (said or done.stderr.decode("utf-8", "replace")).strip()[:200]
            return self._problem("", f"Claude Code does not tell its version: {why or done.returncode}.", HINT)
        if tuple(int(part) for part in version.groups()[1:]) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            return self._problem(version[1], f"Claude Code {version[1]} is too old; bide needs {oldest}.", HINT)
        return Runtime(name=self.name, version=version[1], capabilities=launch.CAPABILITIES)

    def _problem(self, version: str, problem: str, hint: str) -> Runtime:
        return Runtime(name=self.name, version=version, capabilities=launch.CAPABILITIES, problem=problem, hint=hint)

    def carried(self, runtime_session_id: str) -> Carried:
        """The conversation and what it refers to; the rest of the folder is caches, ids and a registry of processes."""
        conversation = transcript.place(runtime_session_id)
        return Carried(keep=(conversation, conversation.removesuffix(".jsonl")), private=(transcript.CONFIG,))

    def memory(self, home: Path, runtime_session_id: str) -> Memory:
        """What the saved conversation holds."""
        return transcript.read(home, runtime_session_id)

    def open(self, job: Job) -> Dialogue:
        """Decides from the conversation on disk whether to resume, and begins."""
        return ClaudeDialogue(launch.decide(job, job.binary or self.binary()))
