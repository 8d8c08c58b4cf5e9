"""Fixtures of the driver tests: a gateway stub with the rehearsal model behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.drivers.harness import BEGUN, GatewayStub


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def shared_gateway(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayStub]:
    stub = GatewayStub(tmp_path_factory.mktemp("model"))
    await stub.start()
    yield stub
    await stub.stop()


@pytest.fixture
async def gateway(shared_gateway: GatewayStub) -> AsyncIterator[GatewayStub]:
    shared_gateway.model.fail(None)
    shared_gateway.asked.clear()
    yield shared_gateway
    while BEGUN:
        await BEGUN.pop().kill()
