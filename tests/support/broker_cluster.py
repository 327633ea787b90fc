"""A cluster of real processes that a test may hurt: brokers and etcd members, each behind links that can be cut."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from respool.model.operator_errors import OperatorError
from respool.node.config import load_settings
from respool.operate.cluster_store import ClusterAddress, run_on_cluster
from respool.operate.status import read_status
from support.broker_process import BrokerProcess
from support.etcd_process import EtcdCluster
from support.links import Link, Links
from support.topics import Topics
from support.waiting import wait_until

WELL_SECONDS_MAX = 90.0
# Between two looks at the cluster.
STATUS_S = 0.1
SETTINGS = {
    # A busy machine must not end a session.
    "session_ttl_ms": 9_000,
    "replica_lag_max_ms": 3_000,
    "default_replication_factor": 3,
    "topic.min.insync.replicas": 2,
    "offsets_topic_partitions": 3,
    "transactions_topic_partitions": 3,
    "group_initial_rebalance_delay_ms": 100,
    "etcd_allow_old_versions": True,
}
# For tests that wait for the end of a killed broker's session.
SHORT_SESSIONS = {"session_ttl_ms": 3_000}


class BrokerCluster:
    """Use it as a context. With `has_links` clients, brokers and etcd reach each other only through links."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        etcd_members: int = 1,
        has_links: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._folder = folder
        self._first_count = brokers
        self._settings = {**SETTINGS, **(settings or {})}
        self._has_links = has_links
        self._etcd_members = etcd_members
        self._stack = ExitStack()
        self.brokers: dict[int, BrokerProcess] = {}
        # Where others reach a broker; where a broker reaches each etcd member; where members reach another.
        self.doors: dict[int, Link] = {}
        self.to_etcd: dict[int, list[Link]] = {}
        self.etcd_peers: list[Link] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.links = stack.enter_context(Links())
            self.etcd = stack.enter_context(
                EtcdCluster(
                    self._folder / "etcd",
                    members=self._etcd_members,
                    advertise_peer=self._peer_link if self._has_links else str,
                )
            )
            stack.callback(self._kill_all)
            for number in range(1, self._first_count + 1):
                self.add(number)
            for broker in self.brokers.values():
                broker.wait_until_listening()
            self.wait_until_well()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            if error is not None:
                for number, broker in self.brokers.items():
                    error.add_note(f"broker {number} said at last:\n{broker.log[-2500:]}")

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address_of(number) for number in self.brokers)

    @property
    def etcd_address(self) -> str:
        return ",".join(self.etcd.endpoints)

    @property
    def session_ttl_s(self) -> float:
        return float(str(self._settings["session_ttl_ms"])) / 1000

    def address_of(self, number: int) -> str:
        """Where clients find it."""
        if self._has_links:
            return self.doors[number].address
        return self.brokers[number].address

    def data_of(self, number: int) -> Path:
        return self.brokers[number].data

    def add(self, number: int) -> BrokerProcess:
        """Launch one more broker, without waiting for it."""
        settings: dict[str, object] = {**self._settings, "broker_id": number}
        broker = BrokerProcess(self._folder / f"broker-{number}", settings)
        if self._has_links:
            self.doors[number] = self.links.to(broker.host, broker.port)
            self.to_etcd[number] = [self._link_to(url) for url in self.etcd.endpoints]
            broker.settings["advertised"] = self.doors[number].address
            broker.settings["etcd"] = ",".join(one.address for one in self.to_etcd[number])
        else:
            broker.settings["etcd"] = self.etcd_address
        self.brokers[number] = broker
        broker.launch()
        return broker

    def wait_until_known(self, topic: str) -> None:
        """A topic just made is not known to every broker at once; a client may ask any of them."""
        for number in self.brokers:
            admin = Topics(self.address_of(number)).admin
            wait_until(
                lambda admin=admin: (
                    admin.list_topics(topic, timeout=60).topics[topic].error is None
                ),  # type: ignore[misc]
                f"broker {number} knows {topic}",
            )

    # What an operator does.

    def run(self, *arguments: str, seconds: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """`respool cluster …` on this cluster."""
        return subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from respool.cli.main import main; sys.exit(main())",
                "cluster",
                *arguments,
                f"--etcd={self.etcd_address}",
                "--set=etcd_allow_old_versions=true",
            ],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )

    def status(self) -> dict[str, Any]:
        """What `respool cluster status --json` prints; read here, for a process takes half a second."""
        flags = {"etcd": self.etcd_address, "etcd_allow_old_versions": True}
        address = ClusterAddress(settings=load_settings(file=None, environ={}, flags=flags))
        return run_on_cluster(address, read_status)

    def is_well(self) -> bool:
        """Every partition has a leader, and all its replicas are in sync."""
        try:
            return bool(self.status()["is_well"])
        except OperatorError:
            return False

    def wait_until_well(self, *, seconds: float = WELL_SECONDS_MAX) -> None:
        wait_until(
            self._all_are_there, "all brokers have joined", seconds=seconds, every_s=STATUS_S
        )
        wait_until(
            self.is_well,
            "every partition is led and has all its replicas in sync",
            seconds=seconds,
            every_s=STATUS_S,
        )

    def stop(self) -> None:
        """Stop all brokers cleanly, one after the other, and insist that none said anything bad."""
        for broker in self.brokers.values():
            broker.stop()
        for broker in self.brokers.values():
            broker.check()

    def _kill_all(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()

    def _all_are_there(self) -> bool:
        shown = self.status()["brokers"]
        return {one["broker"] for one in shown if one["state"] == "up"} >= set(self.brokers)

    def _peer_link(self, url: str) -> str:
        link = self._link_to(url)
        self.etcd_peers.append(link)
        return f"http://{link.address}"

    def _link_to(self, url: str) -> Link:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        return self.links.to(address.hostname, address.port)
