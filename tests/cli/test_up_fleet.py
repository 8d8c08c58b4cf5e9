"""What `bide up` says where its output is kept: the logs of a cluster or a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

TOKEN = "owner-" + "o" * 40


def test_the_owners_token_of_a_fleet_is_not_written_into_the_logs_of_its_servers(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "BIDE_HOME": str(tmp_path), "BIDE_OWNER_TOKEN": TOKEN}
    words = [sys.executable, "-m", "bide.cli.main", "up", "--no-runner", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        assert up.stdout is not None
        said = "".join(takewhile(lambda line: "Hand over a task" not in line, up.stdout))
        up.terminate()
        said += up.stdout.read()
    assert "BIDE_OWNER_TOKEN" in said
    assert TOKEN not in said
    assert "`bide runner --server http://127.0.0.1:" in said
    assert "the runner goes on" not in said
    assert TOKEN in (tmp_path / "client.json").read_text()
