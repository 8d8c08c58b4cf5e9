"""What a Prometheus server may scrape. Every name is explained in docs/reference/metrics.md."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from bide.core import commands as c
from bide.core import facts as f
from bide.core.codec import DAMAGED
from bide.core.handle import Done

# Bounds of histograms, seconds and counts.
_QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_LONG = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_GROUP = (1, 2, 5, 10, 20, 50, 100, 256)


class Metrics:
    """The counters of one server; a registry of their own, so that two servers in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._of_requests()
        self._of_sessions()
        self._of_the_fleet()
        self._of_the_store()

    def _of_requests(self) -> None:
        self.requests = self._counter("requests", "Requests answered.", "method", "route", "status")
        self.seconds = Histogram(
            "bide_request_seconds", "Time to answer, streams and waiting syncs left out.", ["route"],
            registry=self.registry,
        )  # fmt: skip
        self.streams = self._gauge("streams_open", "Event streams that are open.")
        self.syncs = self._gauge("syncs_waiting", "Runner syncs that wait for news.")
        self.event_lag = self._histogram("event_lag_seconds", "From a fact's time to a reader's stream.", _QUICK)
        self.damaged = self._counter("events_damaged", "Stored events that could not be read, each time one was shown.")
        self.loop_lag = self._histogram("loop_lag_seconds", "How late the event loop does what it is to do.", _QUICK)

    def _of_sessions(self) -> None:
        self.facts = self._counter("facts", "Facts stored.", "type")
        self.leases = self._counter("leases", "Leases by how they came: granted, renewed, revived, adopted.", "how")
        self.parks = self._counter("parks", "Sessions parked.")
        self.park_seconds = self._histogram("park_seconds", "From the wish to park to a free runner.", _LONG)
        self.resumes = self._counter("resumes", "Workspaces made ready, by source: warm, checkpoint, fresh.", "source")
        self.restore_seconds = self._histogram("restore_seconds", "Time to make a workspace ready.", _LONG, "source")
        self.interruptions = self._counter("interruptions", "Sessions whose runner went away.")
        self.losses = self._counter("losses", "Work that was lost: rolled_back to a checkpoint, or lost whole.", "kind")
        self.questions = self._counter("questions", "Questions asked, answered, declined, withdrawn.", "what")
        self.checkpoints = self._counter("checkpoints", "Checkpoints saved and failed.", "result")
        self.checkpoint_bytes = self._counter("checkpoint_bytes", "Bytes that saved checkpoints hold.")
        self.checkpoint_new_bytes = self._counter("checkpoint_new_bytes", "Bytes that they added to the blob store.")
        self.checkpoint_seconds = self._histogram("checkpoint_seconds", "Time to save a checkpoint.", _LONG)
        self.wakes = self._counter("wakes", "Sessions told that their time has come.")
        self.failures = self._counter("loop_failures", "Rounds of a loop that failed.", "loop")

    def _of_the_fleet(self) -> None:
        """The same at every server: they are read from the store, see `gauges`."""
        self.queued = self._gauge("sessions_queued", "Sessions that wait for a runner.", "pool")
        self.held = self._gauge("sessions_held", "Sessions that runners hold.", "pool")
        self.oldest = self._gauge("queue_oldest_seconds", "How long the first in the queue has waited.", "pool")
        self.runners = self._gauge("runners", "Runners by state.", "pool", "state")
        self.slots = self._gauge("slots", "Slots of the runners that are online.", "pool")
        self.slots_free = self._gauge("slots_free", "Free slots of the runners that take sessions.", "pool")
        self.floor = self._gauge(
            "runners_floor", "Slots of a pool up to its highest runner that holds a session.", "pool"
        )

    def _of_the_store(self) -> None:
        self.store_up = self._gauge("store_up", "Whether the store answered the last time it was asked (1, 0).")
        self.store_waiting = self._gauge("store_waiting", "Writes that wait for the store.")
        self.commit_seconds = self._histogram("store_commit_seconds", "Time of a transaction.", _QUICK)
        self.commit_writes = self._histogram("store_commit_writes", "Writes that share a transaction.", _GROUP)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    # -- what is counted ----------------------------------------------------------------------------------------------

    def decided(self, command: c.Command, done: Done) -> None:
        """Counts what a command led to, from the facts that are stored; the one place where it is done."""
        if isinstance(command, c.Renew) and not done.envelopes:
            self.leases.labels("renewed").inc()
        for type_, times in Count(e.type for e in done.told).items():
            self.facts.labels(type_).inc(times)
        for e in done.told:
            if (count := _COUNTED.get(type(e.fact))) is not None:
                count(self, e.fact)
        if isinstance(command, c.Wake) and done.envelopes:
            self.wakes.inc()
        elif isinstance(command, c.Renew) and done.envelopes:
            self.leases.labels("revived").inc()
        elif isinstance(command, c.Grant):
            self.leases.labels("granted").inc()
        elif isinstance(command, c.Adopt) and done.envelopes:
            self.leases.labels("adopted").inc()

    def shown(self, found: Iterable[f.Envelope]) -> None:
        """Counts what is damaged of what is shown."""
        self.damaged.inc(sum(isinstance(e.fact, f.Opaque) and e.fact.body == DAMAGED for e in found))

    def committed(self, writes: int, seconds: float) -> None:
        """Counts one transaction."""
        self.commit_seconds.observe(seconds)
        self.commit_writes.observe(writes)

    def parked(self, fact: f.Parked) -> None:
        """Counts a park."""
        self.parks.inc()
        if fact.seconds:
            self.park_seconds.observe(fact.seconds)

    def restored(self, fact: f.EnvironmentRestored) -> None:
        """Counts a workspace that is ready."""
        self.resumes.labels(fact.source).inc()
        self.restore_seconds.labels(fact.source).observe(fact.seconds)

    def saved(self, fact: f.CheckpointSaved) -> None:
        """Counts a checkpoint."""
        self.checkpoints.labels("saved").inc()
        self.checkpoint_bytes.inc(max(0, fact.checkpoint.bytes))
        self.checkpoint_new_bytes.inc(max(0, fact.checkpoint.new_bytes))
        self.checkpoint_seconds.observe(fact.checkpoint.seconds)

    # -- how they are made --------------------------------------------------------------------------------------------

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"bide_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"bide_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"bide_{name}", text, labels, buckets=bounds, registry=self.registry)


_COUNTED: dict[type[Any], Callable[[Metrics, Any], None]] = {
    f.Parked: Metrics.parked,
    f.EnvironmentRestored: Metrics.restored,
    f.CheckpointSaved: Metrics.saved,
    f.CheckpointFailed: lambda m, fact: m.checkpoints.labels("failed").inc(),
    f.Interrupted: lambda m, fact: m.interruptions.inc(),
    f.EnvironmentRolledBack: lambda m, fact: m.losses.labels("rolled_back").inc(),
    f.EnvironmentLost: lambda m, fact: m.losses.labels("lost").inc(),
    f.QuestionAsked: lambda m, fact: m.questions.labels("asked").inc(),
    f.QuestionAnswered: lambda m, fact: m.questions.labels("answered").inc(),
    f.QuestionDeclined: lambda m, fact: m.questions.labels("declined").inc(),
    f.QuestionWithdrawn: lambda m, fact: m.questions.labels("withdrawn").inc(),
    f.QuestionSuperseded: lambda m, fact: m.questions.labels("superseded").inc(),
}
