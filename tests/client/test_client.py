"""What programs do with the client, against a real server."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bide
from bide.client import Connection, shapes
from bide.core.bounds import Limit
from bide.core.refusals import Refused
from bide.server import shapes as served
from bide.server.routes.runners import Runtime
from bide.server.routes.sessions import Started
from tests.server.harness import LiveServer, Voice, held

Call = Callable[[bide.SyncClient], object]


@pytest.fixture
def client(server: LiveServer) -> Iterator[bide.SyncClient]:
    with bide.SyncClient(server.url, server.token) as found:
        yield found


def take(voice: Voice, grant: dict[str, Any], *inputs: str) -> None:
    """The runtime has these inputs."""
    for one in inputs or [one["id"] for one in grant["job"]["inputs"]]:
        voice.say(
            grant, *({"type": "user.receipt", "input_id": one, "status": way} for way in ("delivered", "consumed"))
        )


def refusal(found: pytest.ExceptionInfo[Refused]) -> tuple[str, bool, bool]:
    return found.value.code, bool(found.value.sentence), bool(found.value.hint)


def more(found: pytest.ExceptionInfo[Refused]) -> dict[str, Any]:
    """What a program is told beside code, sentence and hint."""
    return found.value.more


def unheld(client: bide.SyncClient, repo: Path, key: str = "") -> str:
    """A new session that no runner takes."""
    made = client.create_session("x", repository=str(repo), runtime="scripted", pool="empty", key=key)
    return made["session"]["id"]


def test_a_session_from_start_to_answer(server: LiveServer, client: bide.SyncClient, repo: Path) -> None:
    voice = Voice(server, "story", pool="story")
    started = client.create_session("Fix it", repository=str(repo), runtime="scripted", pool="story")
    session = started["session"]["id"]
    assert [one["text"] for one in started["inputs"]] == ["Fix it"]
    grant = voice.claim()
    take(voice, grant)
    question = voice.ask(grant, "Which one?")
    assert client.wait_for(session, "waiting", timeout_s=20)["turn"]["waiting_for"] == "answer"
    assert [one["id"] for one in client.questions(session, status="open")] == [question]
    receipt = client.answer(question, choices=["a"], via="cli")
    assert (receipt["type"], receipt["status"], receipt["session_id"]) == ("user.answer", "accepted", session)
    given = client.questions(session)[0]["answer"]
    assert given is not None
    assert given["by"] == "owner"
    with pytest.raises(Refused) as found:
        client.answer(question, "b")
    assert refusal(found) == ("already_answered", True, True)
    assert more(found)["answer"]["choices"] == ["a"]


def test_nothing_is_started_by_a_dry_run_and_its_limits_are_those_that_hold(
    client: bide.SyncClient, repo: Path
) -> None:
    before = len(client.sessions()["items"])
    tried = client.create_session(
        "x", repository=str(repo), runtime="scripted", settings={"online_window_s": 7.0}, dry_run=True
    )
    assert {one["name"]: (one["value"], one["origin"]) for one in tried["limits"]}["online_window_s"] == (7, "session")
    assert len(client.sessions()["items"]) == before


def test_sending_twice_with_one_key_is_one_message(client: bide.SyncClient, repo: Path) -> None:
    one, two = (unheld(client, repo, key="k") for _ in range(2))
    assert one == two
    first, again, other = (client.send(one, "hello", key=key)["id"] for key in ("a", "a", ""))
    assert first == again != other
    assert [receipt["text"] for receipt in client.inputs(one)] == ["x", "hello", "hello"]
    assert client.send(one, "later")["id"] > other > one, "ids of inputs are in order of time"


def test_a_beginning_of_an_id_is_enough_unless_it_is_shared(client: bide.SyncClient, repo: Path) -> None:
    ids = [unheld(client, repo) for _ in range(3)]

    async def named(text: str) -> str:
        return await client._client.session_id(text)

    for one in ids:
        assert client._do(named(one)) == one
        assert client._do(named(one[:24])) == one
        assert client._do(named(one[:24].replace("-", "").upper())) == one
    with pytest.raises(Refused) as found:
        client._do(named(ids[0][:6]))
    assert refusal(found) == ("bad_id", True, True)
    assert set(ids) <= set(more(found)["candidates"])
    for wrong, code in ((ids[0][:5], "bad_id"), ("ps --all", "bad_id"), ("ffffff", "no_session"), ("", "bad_id")):
        with pytest.raises(Refused) as found:
            client._do(named(wrong))
        assert found.value.code == code


def test_a_beginning_names_the_question_that_is_open_before_those_that_are_not(
    server: LiveServer, client: bide.SyncClient, repo: Path
) -> None:
    voice = Voice(server, "prefixed", pool="prefixed")
    client.create_session("x", repository=str(repo), runtime="scripted", pool="prefixed")
    grant = voice.claim()
    voice.n = {("elsewhere", n): 0 for n in range(99)}  # its questions are of moments that no other test has
    voice.ask(grant, "Of another moment?")
    closed, asked = voice.ask(grant, "First?"), voice.ask(grant, "Second?")
    client.answer(closed, "yes")

    def named(text: str) -> str:
        return client._do(client._client.question_id(text))

    assert (named(asked[:24]), named(closed[:24]), named(closed)) == (asked, closed, closed)
    assert closed[:11] == asked[:11], "one moment"
    assert named(closed[:11]) == asked
    given = client.question(closed)["answer"]
    assert given is not None
    assert (client.question(asked)["status"], given["text"]) == ("open", "yes")
    client.answer(asked, "yes")
    with pytest.raises(Refused) as found:
        named(asked[:11])
    assert found.value.more["candidates"] == sorted((closed, asked))
    with pytest.raises(Refused) as found:
        named("ffffff")
    assert found.value.code == "no_question"


def test_waiting_is_not_fooled_by_what_the_log_tells_of_earlier(
    server: LiveServer, client: bide.SyncClient, repo: Path
) -> None:
    voice = Voice(server, "replay", pool="replay")
    session = client.create_session("x", repository=str(repo), runtime="scripted", pool="replay")["session"]["id"]
    grant = voice.claim()
    take(voice, grant)
    question = voice.ask(grant, "Replayed?")  # the log now holds a turn that ended with a question
    client.wait_for(session, "waiting", timeout_s=20)
    client.answer(question, "go on")
    with pytest.raises(Refused) as found:
        client.wait_for(session, "waiting", timeout_s=0.7)
    assert found.value.code == "timed_out"
    news = voice.sync(held(grant), wait_s=1)["commands"][0]["inputs"][0]["id"]
    seen: list[str] = []

    def work_on(now: shapes.Session) -> None:
        if not seen:
            take(voice, grant, news)
            voice.say(
                grant, {"type": "turn.started", "input_ids": [news]}, {"type": "turn.ended", "result": "completed"}
            )
        seen.append(now["shown"])

    now = client.wait_for(session, "waiting", timeout_s=20, on_change=work_on)
    assert (now["turn"]["n"], now["turn"]["waiting_for"], seen[0]) == (2, "message", "working")


def test_waiting_ends_when_the_session_has_ended(client: bide.SyncClient, repo: Path) -> None:
    session = unheld(client, repo)
    client.cancel(session)
    assert client.wait_for(session, "parked", timeout_s=20)["outcome"] == "cancelled"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda c: c.session("00000000-0000-7000-8000-000000000000"), "no_session"),
        (lambda c: c.session("../projects"), "bad_id"),
        (lambda c: c.project("nothing"), "no_project"),
        (lambda c: c.create_session("x", repository="/nowhere"), "no_repository"),
        (lambda c: c.put_project("p/../q", repository="/nowhere"), "no_route"),
    ],
)  # fmt: skip
def test_a_refusal_arrives_with_code_sentence_and_hint(client: bide.SyncClient, call: Call, code: str) -> None:
    with pytest.raises(Refused) as found:
        call(client)
    assert refusal(found) == (code, True, True)


def test_a_wrong_token_and_no_server_are_told_apart(server: LiveServer) -> None:
    for connection, code in (
        (Connection(url=server.url, token="wrong"), "unauthenticated"),
        (Connection(url="http://127.0.0.1:9", token="x"), "unreachable"),
    ):
        with bide.SyncClient(connection=connection) as client, pytest.raises(Refused) as found:
            client.runners()
        assert refusal(found) == (code, True, True)


def test_a_restart_between_two_calls_goes_unnoticed(tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "restarted")
    try:
        with bide.SyncClient(server.url, server.token) as client:
            session = client.create_session("x", repository=str(repo), runtime="scripted")["session"]["id"]
            server.stop()
            server.start()
            client.send(session, "hello")
            assert [one["text"] for one in client.inputs(session)] == ["x", "hello"]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (shapes.Session, served.Session),
        (shapes.Turn, served.Turn),
        (shapes.Environment, served.Environment),
        (shapes.Checkpoint, served.Checkpoint),
        (shapes.Receipt, served.Receipt),
        (shapes.Question, served.Question),
        (shapes.Answer, served.Answer),
        (shapes.Event, served.Event),
        (shapes.Output, served.Output),
        (shapes.Glimpse, served.Glimpse),
        (shapes.Runner, served.Runner),
        (shapes.Project, served.Project),
        (shapes.Limit, Limit),
        (shapes.Started, Started),
        (shapes.Runtime, Runtime),
    ],
)  # fmt: skip
def test_the_types_of_the_client_are_what_the_server_answers(ours: type, theirs: type[msgspec.Struct]) -> None:
    assert set(typing.get_type_hints(ours)) == set(theirs.__struct_fields__)
