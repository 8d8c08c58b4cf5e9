"""What a machine's sessions would lose if systemd ran servers and runners wrongly. `systemd-analyze` judges the units."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bide.core.limits import RUNNER_STOP_S, SHUTDOWN_S
from bide.server.config import load
from tests.deploy.commands import checked

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
BIDE = "/opt/bide/bin/bide"
VERIFY_S = 60.0
every_unit = pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda path: path.name)
RUNNER, SERVER = UNITS / "bide-runner@.service", UNITS / "bide-server.service"

# Each of them takes away what a session's sandbox is made of: see facts of the kernel in the unit's own comment.
BREAKS_THE_SANDBOX = (
    "RestrictNamespaces", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "ProtectHostname",
    "PrivateUsers", "PrivateDevices", "DevicePolicy", "ProtectClock",
)  # fmt: skip


def said(unit: Path, name: str) -> list[str]:
    """All values of a directive, in order."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def the(unit: Path, name: str) -> str:
    [value] = said(unit, name)
    return value


@every_unit
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    assert program, "systemd-analyze is not installed (on Debian and Ubuntu: apt-get install systemd)"
    there = tmp_path / "bide"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    copy = tmp_path / unit.name.replace("@.", "@gpu.")
    copy.write_text(unit.read_text().replace(BIDE, str(there)))
    words = [program, "verify", "--man=no", "--recursive-errors=no", str(copy)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=VERIFY_S, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    copy.write_text(copy.read_text() + "\n[Service]\nKillMood=mixed\n")
    ran = subprocess.run(words, capture_output=True, text=True, timeout=VERIFY_S, check=False)
    assert "KillMood" in ran.stderr, "the check sees a misspelt line"


@every_unit
def test_a_unit_starts_a_command_that_bide_has(unit: Path) -> None:
    program, *words = the(unit, "ExecStart").split()
    assert program == BIDE
    checked(["bide", *(word.replace("${RUNNER_SLOTS}", "4") for word in words)])


@every_unit
def test_what_ends_badly_starts_again_and_again(unit: Path) -> None:
    assert the(unit, "Restart") == "on-failure"
    assert the(unit, "StartLimitIntervalSec") == "0"


@every_unit
def test_no_secret_stands_in_a_unit_that_everybody_can_read(unit: Path) -> None:
    assert said(unit, "EnvironmentFile")
    assert not re.search(r"(TOKEN|KEY|DATABASE)=", "".join(said(unit, "Environment") + said(unit, "ExecStart")))


def test_a_runner_drains_before_it_is_killed_and_its_sessions_are_not_told_to_end_before_they_are_saved() -> None:
    assert the(RUNNER, "KillMode") == "mixed"
    assert float(the(RUNNER, "TimeoutStopSec")) > RUNNER_STOP_S
    assert float(the(SERVER, "TimeoutStopSec")) > 2 * SHUTDOWN_S


def test_the_unit_of_a_runner_leaves_its_sandbox_what_it_is_made_of() -> None:
    for directive in BREAKS_THE_SANDBOX:
        assert said(RUNNER, directive) == []
    [denied] = said(RUNNER, "SystemCallFilter")
    assert denied.startswith("~")
    assert not {"@mount", "@process", "@privileged", "@debug"} & set(denied[1:].split())


def test_a_runner_keeps_its_name_and_its_folder_over_restarts_and_shares_them_with_no_other() -> None:
    words = the(RUNNER, "ExecStart").split()
    root = words[words.index("--root") + 1]
    assert "%i" in words[words.index("--name") + 1]
    assert root == f"/var/lib/{the(RUNNER, 'StateDirectory')}"
    assert root.endswith("-%i")
    assert the(RUNNER, "StateDirectoryMode") == "0711"  # sessions of another user have to pass through


@every_unit
def test_nothing_of_bide_runs_as_root(unit: Path) -> None:
    assert the(unit, "User") == "bide"
    assert the(unit, "CapabilityBoundingSet") == ""
    assert the(unit, "NoNewPrivileges") == "yes"


def test_the_server_takes_the_settings_that_its_unit_gives_it() -> None:
    given = dict(pair.split("=", 1) for pair in the(SERVER, "Environment").split())
    assert load({}, given).data == Path("/var/lib") / the(SERVER, "StateDirectory")
