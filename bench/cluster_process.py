"""A cluster of its own for a measurement: an etcd and several brokers on this machine, removed afterwards."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.broker_process import BENCH_FOLDER, ROOT, BrokerFailed, BrokerProcess, CpuTime
from bench.requests import METADATA_VERSION, Client, RequestFailed
from respool.devcluster.etcd_server import EtcdServer
from respool.wire.api_table import Api

WELL_SECONDS_MAX = 120.0
SETTINGS = {
    "default_replication_factor": 3,
    "topic.min.insync.replicas": 2,
    "etcd_allow_old_versions": "true",
}
RESPOOL = (sys.executable, "-c", "import sys; from respool.cli.main import main; sys.exit(main())")


class ClusterProcess:
    """Use as a context. Brokers are numbered from 1."""

    def __init__(self, *, brokers: int = 3, settings: Mapping[str, object] | None = None) -> None:
        self._count = brokers
        self._settings = {**SETTINGS, **(settings or {})}
        self.brokers: dict[int, BrokerProcess] = {}

    def __enter__(self) -> Self:
        BENCH_FOLDER.mkdir(exist_ok=True)
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="etcd-", dir=BENCH_FOLDER))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self.etcd = EtcdServer(folder / "data", log=folder / "log")
            stack.callback(self.etcd.kill)
            self._stack = stack
            self._wait_for_etcd()
            for number in range(1, self._count + 1):
                self.add(number)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        return ",".join(one.address for one in self.brokers.values() if one.is_running)

    def add(self, number: int) -> BrokerProcess:
        """Start one more, and wait until it accepts clients."""
        settings = {**self._settings, "broker_id": number, "etcd": self.etcd.address}
        broker = BrokerProcess(settings)
        self.brokers[number] = self._stack.enter_context(broker)
        return broker

    def client(self) -> Client:
        """To any broker that runs."""
        one = next(one for one in self.brokers.values() if one.is_running)
        return Client(one.host, one.port)

    def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = 3, settings: Any = None
    ) -> None:
        """Create it, and wait until all its replicas are in sync."""
        with self.client() as client:
            client.create_topic(name, partitions=partitions, settings=settings)
        self.wait_until_in_sync(name, replicas=replicas)

    def wait_until_in_sync(self, topic: str, *, replicas: int = 3) -> None:
        deadline = time.monotonic() + WELL_SECONDS_MAX
        while time.monotonic() < deadline:
            with self.client() as client:
                found = partitions_of(client, topic)
            if all(len(one.isr_nodes) == len(one.replica_nodes) >= replicas for one in found):
                return
            time.sleep(0.1)
        raise BrokerFailed(f"the replicas of {topic} were not in sync in {WELL_SECONDS_MAX:.0f} s")

    def run(self, *arguments: str) -> str:
        """`respool cluster …`; returns what it printed."""
        done = subprocess.run(
            [
                *RESPOOL,
                "cluster",
                *arguments,
                f"--etcd={self.etcd.address}",
                "--set=etcd_allow_old_versions=true",
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        if done.returncode:
            raise BrokerFailed(f"respool cluster {arguments[0]}: {done.stderr}")
        return done.stdout

    # What all of them have used together.

    def cpu(self) -> CpuTime:
        each = [one.cpu() for one in self.brokers.values() if one.is_running]
        return CpuTime(total=sum(one.total for one in each), system=sum(one.system for one in each))

    def written_bytes(self) -> int:
        return sum(one.written_bytes() for one in self.brokers.values() if one.is_running)

    def _wait_for_etcd(self) -> None:
        deadline = time.monotonic() + 30
        host, _, port = self.etcd.address.rpartition(":")
        while time.monotonic() < deadline:
            try:
                Client(host, int(port), timeout_s=1).socket.close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise BrokerFailed(f"etcd did not start: {self.etcd.last_words}")


def partitions_of(client: Client, topic: str) -> Any:
    """What a broker tells of them: leader, leader's epoch, replicas, and those in sync."""
    reply = client.call(
        Api.METADATA,
        METADATA_VERSION,
        topics=[{"topic_id": None, "name": topic}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    (found,) = reply.topics
    if found.error_code:
        raise RequestFailed(f"metadata of {topic}: {found.error_code!r}")
    return found.partitions
