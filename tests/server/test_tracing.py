"""With an SDK a request can be followed through the server; a caller's trace goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bide.server.tracing import Tracing
from tests.server.harness import LiveServer, Voice, following, until

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("bide.server.parts.Tracing", lambda: Tracing(provider))
    return exporter


@pytest.fixture
def traced(spans: InMemorySpanExporter, tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "traced", lease_s=60)
    yield live
    live.stop()


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def test_a_request_is_one_trace_from_the_caller_to_what_was_decided(
    traced: LiveServer, spans: InMemorySpanExporter, repo: Path
) -> None:
    session = traced.session(repo)["id"]
    spans.clear()
    body = {"events": [{"type": "user.message", "text": "x"}]}
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    traced.ok("POST", f"/v1/sessions/{session}/events", json=body, headers=headers)
    [request] = until(lambda: named(spans, "POST /v1/sessions/{session}/events"))
    [handled] = named(spans, "handle Say")
    assert request.parent is not None
    assert (f"{request.context.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, CALLER)
    assert handled.parent is not None
    assert handled.parent.span_id == request.context.span_id
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST", "http.route": "/v1/sessions/{session}/events",
        "http.response.status_code": 200, "bide.session": session,
    }  # fmt: skip
    assert dict(handled.attributes or {}) == {"bide.session": session, "bide.epoch": 0, "bide.facts": 1}
    [commit] = named(spans, "store commit")
    assert dict(commit.attributes or {}) == {"bide.writes": 1}
    assert commit.parent is None


def test_a_refusal_is_an_answer_and_no_error(traced: LiveServer, spans: InMemorySpanExporter, repo: Path) -> None:
    session = traced.session(repo)["id"]
    answer = {"events": [{"type": "user.answer", "question_id": session, "text": "a"}]}
    traced.refused("POST", f"/v1/sessions/{session}/events", 404, "no_question", json=answer)
    [handled] = until(lambda: named(spans, "handle Answer"))
    assert (handled.attributes or {})["bide.refused"] == "no_question"
    assert handled.status.is_unset


def test_a_stream_that_stays_open_for_hours_is_seen_at_once_and_a_sync_says_whose(
    traced: LiveServer, spans: InMemorySpanExporter, repo: Path
) -> None:
    session = traced.session(repo)["id"]
    with following(traced.http, f"/v1/sessions/{session}/events/stream") as frames:
        next(frames)
        assert until(lambda: named(spans, "GET /v1/sessions/{session}/events/stream"))
    runner = Voice(traced, "r")
    assert runner.sync()["grants"]
    [sync] = until(lambda: named(spans, "sync"))
    assert dict(sync.attributes or {}) == {"bide.runner": runner.id, "bide.leases": 0, "bide.grants": 1, "bide.lost": 0}


def test_without_an_sdk_nothing_is_traced() -> None:
    tracing = Tracing()
    assert not tracing.on
    with tracing.span("handle Say", session="s") as span:
        assert not span.is_recording()
