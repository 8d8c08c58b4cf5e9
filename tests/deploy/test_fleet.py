"""The chart's own commands, variables and rights, as processes on this machine: two servers, a database, a runner."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import GIVEN, container, of, one, variables
from tests.deploy.helm import Manifest
from tests.runner.sessions import new_root
from tests.server.harness import repository, until
from tests.snapshots.s3_server import KEY
from tests.store.postgres_server import PostgresServer

BIN = Path(sys.executable).parent
READY_S, END_S = 60.0, 60.0
Running = subprocess.Popen[str]
POD = "night-bide-runner-default-0"


class Fleet:
    """What the manifests say, started by hand. Addresses and folders are this machine's, all else is the chart's."""

    def __init__(self, folder: Path, root: Path, database: str, bucket: str = "") -> None:
        self.folder, self.root = folder, root
        self.secrets = {"bucket": {"access-key-id": KEY.id, "secret-access-key": KEY.secret}}  # that people make
        in_bucket = {"url": bucket, "existingSecret": "bucket"}
        self.values: dict[str, Any] = GIVEN | {
            "database": {"url": database},
            "blobs": in_bucket if bucket else {"url": f"file:{folder / 'blobs'}"},
            "settings": {"lease_s": 6, "runtime": "scripted"},
        }
        self.deployment, self.runner = one(self.values, "Deployment"), one(self.values, "StatefulSet")
        self.processes: list[Running] = []
        self.urls: list[str] = []

    def variables(self, workload: Manifest) -> dict[str, str]:
        """The environment of a container, with what its Secrets hold."""
        kept = {secret["metadata"]["name"]: secret for secret in of(self.values, "Secret")}
        kept |= {name: {"stringData": held} for name, held in self.secrets.items()}
        found = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(self.folder)}
        for name, each in variables(workload).items():
            if "value" in each:
                found[name] = each["value"]
            elif "fieldRef" in each["valueFrom"]:
                found[name] = POD
            else:
                secret, key = kept[each["valueFrom"]["secretKeyRef"]["name"]], each["valueFrom"]["secretKeyRef"]["key"]
                coded = secret.get("data", {}).get(key)
                found[name] = base64.b64decode(coded).decode() if coded else secret["stringData"][key]
        return found

    def start_server(self) -> Running:
        """The pod of a server; returns once it answers."""
        number = len(self.urls)
        environment = one(self.values, "ConfigMap")["data"] | self.variables(self.deployment)
        environment["BIDE_HOME"] = str(self.folder / f"server-{number}")
        words = ["127.0.0.1:0" if word == "0.0.0.0:8811" else word for word in container(self.deployment)["args"]]
        process = self._start([*words, "--json"], environment, f"server-{number}")
        assert process.stdout is not None
        self.urls.append(json.loads(process.stdout.readline())["url"])
        return process

    def runners_environment(self) -> dict[str, str]:
        return self.variables(self.runner) | {"BIDE_SERVER": ",".join(self.urls)}

    def start_runner(self) -> Running:
        """The pod of a runner, with no more rights than the chart gives it."""
        security = container(self.runner)["securityContext"]
        rights = ",".join(["-all", *(f"+{name.lower()}" for name in security["capabilities"]["add"])])
        narrowed = ["setpriv", "--no-new-privs", f"--bounding-set={rights}", "--inh-caps=-all"]
        words = [
            {"$(POD_NAME)": POD, "/var/lib/bide/runner": str(self.root)}.get(w, w)
            for w in container(self.runner)["args"]
        ]
        return self._start(words, self.runners_environment(), "runner", narrowed if os.getuid() == 0 else [])

    def _start(self, words: list[str], environment: dict[str, str], name: str, around: Sequence[str] = ()) -> Running:
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [*around, BIN / "bide", *words], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.processes.append(process)
        return process

    def bide(self, *words: str) -> list[Any]:
        """The lines that it prints, asked by the owner with the token that the chart made."""
        server = self.variables(self.deployment)
        environment = {"PATH": server["PATH"], "HOME": server["HOME"], "BIDE_TOKEN": server["BIDE_OWNER_TOKEN"]}
        environment["BIDE_SERVER"] = ",".join(self.urls)
        words = ("bide", *words, "--json")
        ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=READY_S, check=False)
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def printed(self, session: str) -> list[str]:
        """What tools of the session printed."""
        return [event["data"]["output"] for event in self.bide("logs", session) if event["type"] == "tool.result"]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(params=["volume", "bucket"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    bucket = request.getfixturevalue("s3").url() if request.param == "bucket" else ""
    postgres = PostgresServer()
    try:
        postgres.start()
        with new_root() as root:
            fleet = Fleet(tmp_path, root, postgres.url(postgres.create()), bucket)
            try:
                yield fleet
            finally:
                fleet.end()
    finally:
        postgres.remove()


def test_a_session_runs_in_the_fleet_that_the_chart_describes_and_its_pod_goes_without_losing_it(fleet: Fleet) -> None:
    first, _ = fleet.start_server(), fleet.start_server()
    runner = fleet.start_runner()
    until(lambda: fleet.bide("runners")[0]["items"], READY_S)
    [registered] = fleet.bide("runners")[0]["items"]
    assert (registered["name"], registered["pool"], registered["slots"]) == (POD, "default", 4)
    repo = str(repository(fleet.folder / "repository"))
    task = '@@[{"say": "hello"}, {"run": "echo work > kept"}]'
    session = fleet.bide("run", repo, task, "--online-window", "1h", "--wait", "waiting")[-1]["id"]

    first.kill()
    hook = container(fleet.runner)["lifecycle"]["preStop"]["exec"]["command"]
    drained = subprocess.run(
        hook, env=fleet.runners_environment(), capture_output=True, text=True, timeout=END_S, check=False
    )
    assert drained.returncode == 0, drained.stderr
    assert "parked" in drained.stdout
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(END_S) == 0
    [shown] = fleet.bide("show", session)
    assert (shown["shown"], shown["environment"]["state"]) == ("parked", "suspended")

    again = fleet.start_runner()
    fleet.bide("send", session, '@@[{"run": "cat kept"}]')
    until(lambda: any("work" in output for output in fleet.printed(session)), READY_S)
    assert again.poll() is None
