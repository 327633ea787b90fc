"""The replica fetchers of this broker: one per leader that it follows."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from respool.broker.partitions.partition import Partition
from respool.broker.peer_link import PeerLink
from respool.broker.replication.follower_local_reads import FollowerLocalReads
from respool.broker.replication.follower_log import FollowerLog
from respool.broker.replication.replica_fetcher import ReplicaFetcher
from respool.broker.replication.replica_requests import ReplicaRequests
from respool.broker.replication.replication_throttle import ReplicationThrottle
from respool.model.ids import BrokerId
from respool.ports.clock import Clock


class ReplicaFetchers:
    def __init__(
        self,
        *,
        me: BrokerId,
        link: PeerLink,
        work: FollowerLog,
        throttle: ReplicationThrottle,
        clock: Clock,
        local_reads: Callable[[], FollowerLocalReads],
        fetch_ahead_bytes: int,
        broker_epoch: Callable[[], int | None],
        spawn: Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"],
    ) -> None:
        """`local_reads` is called once per leader."""
        self._me = me
        self._link = link
        self._work = work
        self._throttle = throttle
        throttle.on_changed = self._wake_all
        self._clock = clock
        self._local_reads = local_reads
        self._fetch_ahead_bytes = fetch_ahead_bytes
        self._broker_epoch = broker_epoch
        self._spawn = spawn
        # One for every leader since the start.
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}

    def add(self, partition: Partition) -> None:
        """Start to fetch for this follower from its current leader."""
        assert partition.follower is not None
        leader = partition.follower.image.leader
        for fetcher in self._fetchers.values():
            if fetcher.leader != leader:
                fetcher.remove(partition)
        if leader is not None:
            self._fetcher_from(leader).add(partition)

    def remove(self, partition: Partition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)

    def _wake_all(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def _fetcher_from(self, leader: BrokerId) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(
                leader=leader,
                requests=ReplicaRequests(
                    self._link, me=self._me, leader=leader, local_reads=self._local_reads()
                ),
                work=self._work,
                throttle=self._throttle,
                clock=self._clock,
                fetch_ahead_bytes=self._fetch_ahead_bytes,
                broker_epoch=self._broker_epoch,
                spawn=self._spawn,
            )
            self._spawn(fetcher.run())
        return fetcher
