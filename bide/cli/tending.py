"""The runner that `bide up` looks after: started or taken over, and started anew when its process ends."""

from __future__ import annotations

import threading
import time

from bide.cli import local_runner, out, when
from bide.client import Connection, SyncClient, shapes
from bide.core import limits
from bide.core.refusals import Kind, Refused
from bide.server.serve import Serving


class Tending:
    """One runner for a data folder, for as long as its server serves. `since`: from before the server answered.

    `begin` and `tend` belong to one thread; `leave` may be called from another.
    """

    def __init__(self, serving: Serving, slots: int, since: float) -> None:
        self._serving, self._slots, self._since = serving, slots, since
        self._local: local_runner.Local | None = None
        self._starts: list[float] = []
        self._over = threading.Event()
        self._starting = threading.Lock()  # who leaves waits for a start that is under way, and there is none after it

    @property
    def local(self) -> local_runner.Local:
        """The runner that is there now, or was last."""
        assert self._local is not None, "nothing was begun"
        return self._local

    def leave(self) -> local_runner.Local | None:
        """From now on nothing is started. Gives the runner if its process runs."""
        self._over.set()
        with self._starting:
            return self._local if self._local is not None and self._local.alive else None

    def begin(self) -> shapes.Runner | None:
        """The runner, once the server has heard from it; None when `leave` was called. Raises Refused when it does not come.

        One that drains is not taken over: it takes no more sessions. Its end is waited for, then there is a new one.
        """
        while self._start():
            there = self._seen()
            if there is not None and there["state"] == "online":
                return there
            if there is None and not self.local.adopted:
                raise Refused(
                    "failed", f"The runner has ended: {self.local.last_words()}", f"Its log: {self.local.log}."
                )
            if there is not None:
                self._drained()
        return None

    def tend(self) -> None:
        """Until `leave`: says when the runner has ended, and starts a new one, unless that happens too often."""
        while not self._over.wait(limits.UP_LOOK_S):
            if self.local.alive:
                continue
            ended, log = f"The runner (process {self.local.recorded.pid}) has ended", self.local.log
            if self._often():
                out.tell(
                    f"{ended}. It was started {limits.RUNNER_STARTS_MAX} times within {when.span(limits.RUNNER_STARTS_S)}"
                    f" and is not started again. Look at {log}, then stop the server and run `bide up` again."
                )
                return
            try:
                if self._start():
                    out.tell(f"{ended}; a new one runs as process {self.local.recorded.pid}. Its log: {log}.")
            except (Refused, OSError) as error:
                why = error.sentence if isinstance(error, Refused) else f"No new one can be started: {error.strerror}."
                out.tell(f"{ended}. {why} Its log: {log}.")

    def _start(self) -> bool:
        """Whether there is a runner to look at; not once it is over."""
        with self._starting:
            if self._over.is_set():
                return False
            self._starts.append(time.monotonic())
            began = time.time()
            folder = self._serving.data
            name = local_runner.name_for(folder, shared=bool(self._serving.database))
            self._local = local_runner.started(folder, self._serving.url, self._slots, name=name)
            self._since = self._since if self._local.adopted else began
            return True

    def _often(self) -> bool:
        begun = time.monotonic() - limits.RUNNER_STARTS_S
        self._starts = [at for at in self._starts if at > begun]
        return len(self._starts) >= limits.RUNNER_STARTS_MAX

    def _seen(self) -> shapes.Runner | None:
        """The runner once this server has heard from it; None when its process has ended before that."""
        end = time.monotonic() + limits.RUNNER_READY_S
        with SyncClient(connection=Connection(url=self._serving.url, token=self._serving.token)) as client:
            while time.monotonic() < end and not self._over.is_set():
                there = self._heard_of(client)
                heard = when.parsed(there["last_seen_at"]) if there is not None else None
                if not self.local.alive:
                    return None
                # What was heard of an earlier process, or told to an earlier server, says nothing about this one.
                fresh = heard is not None and heard.timestamp() >= self._since
                if there is not None and fresh and there["state"] in ("online", "draining"):
                    return there
                self._over.wait(limits.UP_LOOK_S)
        raise Refused("timed_out", "The runner has not registered so far.", f"Its log: {self.local.log}.")

    def _heard_of(self, client: SyncClient) -> shapes.Runner | None:
        """The runner as the server knows it; None also while the server's database is away."""
        try:
            return next((one for one in client.runners() if one["name"] == self.local.recorded.name), None)
        except Refused as refused:
            if refused.kind is not Kind.UNREACHABLE:
                raise
            return None

    def _drained(self) -> None:
        """Waits for the end of a runner that drains. Raises Refused when that takes long; `tend` goes on waiting."""
        pid, end = self.local.recorded.pid, time.monotonic() + limits.RUNNER_STOP_S
        out.tell(f"The runner (process {pid}) was told to end, and saves its sessions. A new one starts after it.")
        while self.local.alive and not self._over.wait(limits.UP_LOOK_S):
            if time.monotonic() > end:
                raise Refused(
                    "timed_out", f"The runner (process {pid}) has not ended so far.", "A new one starts when it has."
                )
