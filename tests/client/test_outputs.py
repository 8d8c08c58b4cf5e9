"""What a program has of a session besides its log: whole outputs, and words as they are said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bide.client import Client, SyncClient, shapes
from bide.client.connection import Connection
from bide.core.refusals import Refused
from tests.server.harness import LiveServer, Voice


def held(server: LiveServer, repo: Path, pool: str) -> tuple[Voice, dict[str, Any]]:
    voice = Voice(server, pool, pool=pool)
    server.session(repo, pool=pool)
    return voice, voice.claim()


def of(server: LiveServer) -> Connection:
    return Connection(url=server.url, token=server.token)


def test_a_whole_output_is_read_bit_for_bit_and_listed(server: LiveServer, repo: Path) -> None:
    voice, grant = held(server, repo, "outputs")
    content = bytes(range(256)) * 20_000
    with SyncClient(connection=of(server)) as client:
        with pytest.raises(Refused, match="no_output"):
            list(client.output(grant["session"], "1-3"))
        assert voice.http.put(f"/v1/sessions/{grant['session']}/outputs/1-3", content=content).status_code == 201
        assert b"".join(client.output(grant["session"], "1-3")) == content
        (one,) = client.outputs(grant["session"])["items"]
        assert (one["name"], one["bytes"]) == ("1-3", len(content))


async def test_who_follows_hears_words_as_they_are_said_and_no_event_is_lost_for_it(
    server: LiveServer, repo: Path
) -> None:
    voice, grant = held(server, repo, "glimpsed")
    heard: list[shapes.Glimpse] = []
    said = asyncio.Event()

    def on_glimpse(glimpse: shapes.Glimpse) -> None:
        heard.append(glimpse)
        said.set()

    async def show() -> None:
        words = {"session": grant["session"], "epoch": 1, "n": 0, "turn": 1, "kind": "text", "text": "half a sen"}
        while not said.is_set():
            await asyncio.to_thread(voice.http.post, f"/v1/runners/{voice.id}/glimpses", json={"glimpses": [words]})
        await asyncio.to_thread(voice.say, grant, {"type": "note", "text": "whole"})

    seqs: list[int] = []
    async with Client(connection=of(server)) as client, asyncio.timeout(20):
        showing = asyncio.create_task(show())
        async for event in client.follow(grant["session"], on_glimpse=on_glimpse):
            seqs.append(event["seq"])
            if event["type"] == "note":
                break
        await showing
    assert heard[0] == {"session_id": grant["session"], "turn": 1, "kind": "text", "text": "half a sen"}
    assert seqs == list(range(1, len(seqs) + 1))
