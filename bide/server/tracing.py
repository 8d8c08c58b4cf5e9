"""Spans of what the server does, for whoever has an OpenTelemetry SDK. Without one nothing is made and nothing costs.

Only the API is ours; the SDK, its exporter and its settings (OTEL_*) are the user's: docs/how-to/observe.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, TracerProvider
from starlette.datastructures import Headers

from bide import __version__
from bide.core.refusals import HTTP_STATUS, Kind, Refused

Value = str | int | float


class Tracing:
    """The server's tracer; `provider` where it is not the process's own."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        provider = provider or trace.get_tracer_provider()
        self.on = not isinstance(provider, trace.ProxyTracerProvider)
        self._tracer = trace.get_tracer("bide.server", __version__, provider)

    def request(self, method: str, headers: Headers) -> AbstractContextManager[Span]:
        """The span of a request; one of the caller's (W3C traceparent) is its parent."""
        if not self.on:
            return nullcontext(INVALID_SPAN)
        parent = propagate.extract(dict(headers)) if "traceparent" in headers else None
        return self._ended_once(method, parent)

    def span(self, name: str, **attributes: Value) -> AbstractContextManager[Span]:
        """A span within the present one. A refusal is an answer, no error."""
        return self._within(name, attributes) if self.on else nullcontext(INVALID_SPAN)

    @contextmanager
    def _ended_once(self, method: str, parent: Context | None) -> Iterator[Span]:
        with self._tracer.start_as_current_span(method, parent, SpanKind.SERVER, end_on_exit=False) as span:
            try:
                yield span
            finally:
                if span.is_recording():
                    span.end()

    @contextmanager
    def _within(self, name: str, attributes: dict[str, Value]) -> Iterator[Span]:
        named = {f"bide.{key}": value for key, value in attributes.items()}
        with self._tracer.start_as_current_span(
            name, attributes=named, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Refused as refused:
                span.set_attribute("bide.refused", refused.code)
                raise
            except Exception as error:
                span.record_exception(error)
                span.set_status(StatusCode.ERROR, str(error))
                raise

    def committed(self, writes: int, seconds: float) -> None:
        """A transaction that is over, of so many writes; it belongs to many requests, so to none."""
        if self.on:
            end = time.time_ns()
            span = self._tracer.start_span(
                "store commit", attributes={"bide.writes": writes}, start_time=end - int(seconds * 1e9)
            )
            span.end(end)


def answered(span: Span, method: str, path: str, status: int, named: Mapping[str, str]) -> None:
    """Names a request's span by its route, and says what it was about."""
    span.update_name(f"{method} {path}")
    span.set_attributes({"http.request.method": method, "http.route": path, "http.response.status_code": status})
    span.set_attributes({f"bide.{name}": named[name] for name in ("session", "runner", "question") if name in named})
    if status >= HTTP_STATUS[Kind.FAILED]:
        span.set_status(StatusCode.ERROR)
