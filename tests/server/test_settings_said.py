"""A setting that cannot be is refused in words that people use, and nothing half as big is taken in its place."""

from __future__ import annotations

import pytest

from bide.core.refusals import Refused
from bide.server.settings import checked


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("checkpoints_kept", 2.5, "checkpoints_kept is a whole number, not 2.5."),
        ("workspace_bytes", 1e9 + 0.5, "workspace_bytes is a whole number of bytes, not 1000000000.5."),
        ("retention_s", True, "retention_s is a number of seconds, not True."),
        ("online_window_s", 691200, "online_window_s can be 0s to 7d, not 8d."),
        ("checkpoints_kept", 1, "checkpoints_kept can be 2 to 500, not 1."),
        ("retention_s", float("inf"), "retention_s can be 1m to 3650d, not inf."),
    ],
)
def test_it_is_said_with_its_unit(name: str, value: float, said: str) -> None:
    with pytest.raises(Refused) as refused:
        checked({name: value})
    assert (refused.value.code, refused.value.sentence) == ("bad_setting", said)
