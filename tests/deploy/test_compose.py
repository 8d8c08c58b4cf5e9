"""What one machine's fleet would lose if the compose file were wrong. Docker Compose itself reads it; no engine is needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bide.core.limits import RUNNER_STOP_S, SHUTDOWN_S
from bide.server.config import load
from bide.snapshots.blobs.objects import AccessKey
from tests.deploy.chart import CAPABILITIES
from tests.deploy.commands import checked

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "compose"
COMPOSE_S = 60.0
SERVERS, RUNNERS = ("server-1", "server-2"), ("runner-1", "runner-2")


def compose(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("docker-compose")
    arguments: list[str | Path] = [program, "--file", FOLDER / "compose.yaml", "--env-file", environment, *words]
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    return subprocess.run(arguments, env=clean, capture_output=True, text=True, timeout=COMPOSE_S, check=False)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The file as Compose understands it, with the example's blanks filled in."""
    filled = tmp_path_factory.mktemp("compose") / "env"
    text = (FOLDER / "example.env").read_text()
    text = text.replace("BIDE_MASTER_KEY=", f"BIDE_MASTER_KEY={'0f' * 32}")
    filled.write_text(re.sub(r"^(\w+)=$", r"\1=\1-0123456789abcdef01234567", text, flags=re.MULTILINE))
    ran = compose(filled, "config", "--format", "json")
    assert (ran.returncode, ran.stderr) == (0, "")
    return dict(json.loads(ran.stdout))


def test_checkpoints_can_lie_in_a_bucket_whose_key_only_the_servers_have(tmp_path: Path) -> None:
    text = re.sub(r"^(\w+)=$", rf"\1={'0f' * 32}", (FOLDER / "example.env").read_text(), flags=re.MULTILINE)
    text = text.replace("BIDE_OWNER_TOKEN=0f", "BIDE_OWNER_TOKEN=1f")
    url = "s3://checkpoints/one-machine?region=eu-central-1"
    for name, value in (("BLOBS", url), ("S3_ACCESS_KEY_ID", "id"), ("S3_SECRET_ACCESS_KEY", "secret")):
        assert f"#BIDE_{name}=\n" in text
        text = text.replace(f"#BIDE_{name}=\n", f"BIDE_{name}={value}\n")
    (tmp_path / "env").write_text(text)
    ran = compose(tmp_path / "env", "config", "--format", "json")
    assert (ran.returncode, ran.stderr) == (0, "")
    services = json.loads(ran.stdout)["services"]
    for name in SERVERS:
        config = load({}, services[name]["environment"])
        assert (config.blobs, config.access_key) == (url, AccessKey(id="id", secret="secret"))
    for name in RUNNERS:
        assert not [variable for variable in services[name]["environment"] if "S3" in variable]


def seconds(duration: str) -> float:
    parts = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", duration)
    assert parts, duration
    return 60.0 * int(parts[1] or 0) + int(parts[2] or 0)


def test_a_fleet_without_its_secrets_does_not_start_and_says_which_is_missing() -> None:
    ran = compose(FOLDER / "example.env", "config", "--quiet")
    assert ran.returncode != 0
    assert re.search(r"(POSTGRES_PASSWORD|BIDE_\w+_TOKEN) is missing a value: write it into .env", ran.stderr)


def test_every_container_starts_with_a_command_that_bide_has(fleet: dict[str, Any]) -> None:
    for name in (*SERVERS, *RUNNERS):
        checked(["bide", *fleet["services"][name]["command"]])


def test_the_servers_take_the_settings_they_are_given_and_share_all_they_keep(fleet: dict[str, Any]) -> None:
    first, second = (load({}, fleet["services"][name]["environment"]) for name in SERVERS)
    assert first == second
    assert first.database.startswith("postgresql://bide:POSTGRES_PASSWORD-")
    assert set(SERVERS) <= set(first.hosts)
    for name in SERVERS:
        assert {each["target"] for each in fleet["services"][name]["volumes"]} == {first.blobs.removeprefix("file:")}


def test_a_server_is_used_once_it_is_ready_and_the_database_before_it(fleet: dict[str, Any]) -> None:
    for name in SERVERS:
        assert "/readyz" in " ".join(fleet["services"][name]["healthcheck"]["test"])
        assert fleet["services"][name]["depends_on"]["database"]["condition"] == "service_healthy"
    assert "pg_isready" in " ".join(fleet["services"]["database"]["healthcheck"]["test"])


def test_a_runner_has_time_to_drain_before_it_is_killed(fleet: dict[str, Any]) -> None:
    for name in RUNNERS:
        assert seconds(fleet["services"][name]["stop_grace_period"]) > RUNNER_STOP_S
    for name in SERVERS:
        assert seconds(fleet["services"][name]["stop_grace_period"]) > 2 * SHUTDOWN_S


def test_what_must_outlive_a_container_lies_on_a_volume(fleet: dict[str, Any]) -> None:
    own: set[str] = set()
    for name in (*RUNNERS, "database"):
        [volume] = fleet["services"][name]["volumes"]
        assert volume["source"] in fleet["volumes"]
        own.add(volume["source"])
        words = fleet["services"][name].get("command") or ()
        if name in RUNNERS:
            assert volume["target"] == words[words.index("--root") + 1]
    assert len(own) == 3, "no two share one"


def test_runners_find_any_server_and_hold_a_token_that_only_lets_runners_come_and_go(fleet: dict[str, Any]) -> None:
    for name in RUNNERS:
        environment = fleet["services"][name]["environment"]
        assert environment["BIDE_SERVER"] == ",".join(f"http://{server}:8811" for server in SERVERS)
        assert environment["BIDE_TOKEN"].startswith("BIDE_ENROLMENT_TOKEN")
        assert not [value for value in environment.values() if "OWNER" in value or "POSTGRES" in value]


def test_a_sandbox_can_be_made_inside_the_container_with_no_more_rights_than_it_takes(fleet: dict[str, Any]) -> None:
    for name in RUNNERS:
        runner = fleet["services"][name]
        assert set(runner["cap_add"]) == CAPABILITIES
        assert runner["cap_drop"] == ["ALL"]
        assert "privileged" not in runner
        assert {"no-new-privileges:true", "seccomp=unconfined", "systempaths=unconfined"} <= set(runner["security_opt"])


def test_nothing_listens_on_the_network_unless_somebody_opens_it(fleet: dict[str, Any]) -> None:
    ports = [port for each in fleet["services"].values() for port in each.get("ports", ())]
    assert [port["host_ip"] for port in ports] == ["127.0.0.1", "127.0.0.1"]


def test_the_image_is_made_of_files_that_are_there_and_holds_what_the_chart_calls() -> None:
    text = (FOLDER / "Containerfile").read_text().replace("\\\n", " ")
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    assert 'ENTRYPOINT ["tini", "--", "bide"]' in text
    for package in ("bubblewrap", "git", "tini", "util-linux"):
        assert re.search(rf"apt-get install .*\b{package}\b", text)
    assert "--uid 10001 " in text  # whom the chart's servers run as
