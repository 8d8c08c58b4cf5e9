"""A person at a terminal gets a link that signs a browser in, once."""

from __future__ import annotations

import httpx2

from tests.cli.conftest import Bide
from tests.server.harness import LiveServer


def sign_in(url: str) -> httpx2.Response:
    """What the page does with the link that it was opened by."""
    address, _, code = url.partition("/#sign-in=")
    return httpx2.post(f"{address}/v1/sign-in", json={"code": code}, trust_env=False)


def test_a_link_is_printed_alone_on_stdout_and_is_good_once(bide: Bide, server: LiveServer) -> None:
    ran = bide("open")
    assert (ran.code, ran.out.count("\n")) == (0, 1)
    assert ran.out.startswith(f"{server.url}/#sign-in=")
    assert "once" in ran.err
    assert sign_in(ran.out.strip()).status_code == 200
    assert sign_in(ran.out.strip()).json()["code"] == "link_used"
    told = bide("open", "--json").json
    assert set(told) == {"url", "expires_at"}
    assert sign_in(told["url"]).status_code == 200


def test_whoever_may_not_sign_in_gets_no_link(bide: Bide) -> None:
    ran = bide("open", "--token", "wrong", "--json")
    assert (ran.code, ran.problem["code"]) == (5, "unauthenticated")
