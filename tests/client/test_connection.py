"""Which server is asked, and who gets to see the token."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bide.client.connection import find
from bide.core.refusals import Refused


def test_flags_win_over_variables_and_variables_over_what_up_recorded(tmp_path: Path) -> None:
    (tmp_path / "client.json").write_text('{"url": "http://recorded:1", "token": "r", "more": 1}')
    environ = {"BIDE_HOME": str(tmp_path)}
    both = environ | {"BIDE_SERVER": "http://variable:2/", "BIDE_TOKEN": "v"}
    assert (find("", "", environ).url, find("", "", environ).token) == ("http://recorded:1", "r")
    assert (find("", "", both).url, find("", "", both).token) == ("http://variable:2", "v")
    assert (find("flag:3", "f", both).url, find("flag:3", "f", both).token) == ("http://flag:3", "f")


def test_a_recorded_token_is_never_sent_to_another_server(tmp_path: Path) -> None:
    (tmp_path / "client.json").write_text('{"url": "http://127.0.0.1:8811", "token": "secret"}')
    environ = {"BIDE_HOME": str(tmp_path)}
    assert find("http://elsewhere:1", "", environ).token == ""
    assert find("", "", environ | {"BIDE_SERVER": "http://elsewhere:1"}).token == ""
    assert find("http://127.0.0.1:8811/", "", environ).token == "secret"


def test_several_servers_are_named_with_commas_and_a_token_goes_only_where_all_are_known(tmp_path: Path) -> None:
    (tmp_path / "client.json").write_text('{"url": "http://a:1", "token": "secret", "others": ["http://b:1"]}')
    environ = {"BIDE_HOME": str(tmp_path)}
    assert find("a:1, https://b:2/ ,a:1", "", environ).urls == ("http://a:1", "https://b:2")
    assert find("", "", environ).urls == ("http://a:1", "http://b:1")
    assert find("http://b:1", "", environ).token == "secret"
    assert find("http://a:1,http://c:1", "", environ).token == ""
    with pytest.raises(Refused):
        find("http://a:1,,", "", environ)


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"token": "x"}'])
def test_a_broken_record_is_no_record(tmp_path: Path, broken: str) -> None:
    (tmp_path / "client.json").write_text(broken)
    with pytest.raises(Refused) as refused:
        find("", "", {"BIDE_HOME": str(tmp_path)})
    assert refused.value.code == "unreachable"
    assert "bide up" in refused.value.hint


@pytest.mark.parametrize("wrong", ["ftp://host", "http://", "http://host:port", "http://host:70000", "http://h\x1b[0m"])
def test_what_is_no_address_is_said_to_be_none(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(Refused) as refused:
        find(wrong, "", {"BIDE_HOME": str(tmp_path)})
    assert refused.value.code == "bad_value"


def test_importing_bide_does_not_load_the_client_until_it_is_asked_for() -> None:
    code = "import sys, bide; assert 'httpx2' not in sys.modules; bide.Client, bide.SyncClient; print('httpx2' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"
