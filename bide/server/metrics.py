"""What a Prometheus server may scrape: requests, streams, facts, wakes and loop failures."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The counters of one server; a registry of their own, so that two servers in one process do not mix."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter("bide_requests", "Requests answered.", ["method", "route", "status"], registry=registry)
        self.seconds = Histogram(
            "bide_request_seconds", "Time to answer, streams and waiting syncs left out.", ["route"], registry=registry
        )
        self.streams = Gauge("bide_streams_open", "Event streams that are open.", registry=registry)
        self.syncs = Gauge("bide_syncs_waiting", "Runner syncs that wait for news.", registry=registry)
        self.facts = Counter("bide_facts", "Facts taken from runners.", registry=registry)
        self.grants = Counter("bide_grants", "Leases given to runners.", registry=registry)
        self.wakes = Counter("bide_wakes", "Sessions told that their time has come.", registry=registry)
        self.failures = Counter("bide_loop_failures", "Rounds of a loop that failed.", ["loop"], registry=registry)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)
