"""What people would lose if one of several servers that hangs cost a lease which another would have renewed."""

from __future__ import annotations

import pytest

from bide.core.limits import LEASE_HOLDER_SHARE, LEASE_S, POLL_S, POLL_SHARE, SYNC_PATIENCE_S_MIN
from bide.core.servers import Servers, patience_s, wait_s

ANSWERS, HANGS = "answers", "hangs"


@pytest.mark.parametrize("lease_s", [LEASE_S, 30.0])
@pytest.mark.parametrize("servers", [(HANGS, ANSWERS), (HANGS, "hangs too", ANSWERS), (ANSWERS, HANGS)], ids=str)
def test_a_lease_is_renewed_in_time_though_servers_hang(servers: tuple[str, ...], lease_s: float) -> None:
    """Each server keeps a question as long as it may, as servers do that have nothing to tell."""
    line, poll_s = Servers(servers), min(POLL_S, lease_s * POLL_SHARE)
    now, deadline, renewals = 0.0, lease_s * LEASE_HOLDER_SHARE - poll_s, 0  # the last answer was that of a full poll
    while renewals < 5:
        asked_at, patience = now, patience_s(deadline - now)
        keeps_s = min(wait_s(POLL_S, patience), poll_s)
        if line.now == ANSWERS and keeps_s < patience:
            now, deadline, renewals = now + keeps_s, asked_at + lease_s * LEASE_HOLDER_SHARE, renewals + 1
        else:
            now += patience
            line.away(line.now)
        assert now < deadline, f"it froze after {now:g} s"


def test_a_lease_that_ran_out_is_asked_for_again_at_once_and_not_in_a_hurry_that_no_server_stands() -> None:
    assert patience_s(-5.0) == SYNC_PATIENCE_S_MIN
    assert 0 < wait_s(POLL_S, patience_s(-5.0)) < SYNC_PATIENCE_S_MIN


def test_a_poll_is_as_long_as_ever_where_nothing_presses() -> None:
    assert wait_s(POLL_S, patience_s(LEASE_S * LEASE_HOLDER_SHARE)) == POLL_S
