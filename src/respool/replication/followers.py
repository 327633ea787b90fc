"""A leader's followers: how far each has replicated, and which ones may be in the ISR or serve consumers."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.errors import NotLeader, UnknownLeaderEpoch
from respool.model.ids import BrokerId, Offset
from respool.replication.remote_replica import RemoteReplica, ReplicaLag


class Followers:
    def __init__(
        self,
        me: BrokerId,
        image: PartitionImage,
        *,
        brokers: Mapping[BrokerId, BrokerEndpoint],
        lag_ms_max: int,
        first_offset_of_epoch: Offset,
        now_ms: int,
    ) -> None:
        self.brokers = brokers
        self.lag_ms_max = lag_ms_max
        self._first_offset_of_epoch = first_offset_of_epoch
        self._now_ms = now_ms
        self._replicas = {
            broker: RemoteReplica(is_in_sync=broker in image.isr, now_ms=now_ms)
            for broker in image.replicas
            if broker != me
        }
        self._me = me

    def on_time(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)

    def on_image(self, image: PartitionImage, before: PartitionImage) -> None:
        """Add and remove followers according to the image, and note which joined or left the ISR."""
        replicas = self._replicas
        for broker in image.replicas:
            if broker != self._me and broker not in replicas:
                replicas[broker] = RemoteReplica(is_in_sync=False, now_ms=self._now_ms)
        for broker in replicas.keys() - set(image.replicas):
            del replicas[broker]
        for broker, replica in replicas.items():
            if broker in image.isr and broker not in before.isr:
                replica.on_joined(self._now_ms)
            elif broker in before.isr and broker not in image.isr:
                replica.on_left()

    def check(self, broker: BrokerId, broker_epoch: int) -> None:
        """Check that a fetch comes from a replica, and from its registered process (KIP-903).

        Raises:
            UnknownLeaderEpoch: the broker is not a replica of this partition.
            NotLeader: the broker has crashed since it sent the fetch.
        """
        replica = self._replicas.get(broker)
        if replica is None:
            # The image that adds the replica may not have arrived here yet. The replica will retry.
            raise UnknownLeaderEpoch(f"broker {broker} is not one of the replicas")
        self._check_registration(broker, replica, broker_epoch)

    def _check_registration(
        self, broker: BrokerId, replica: RemoteReplica, broker_epoch: int
    ) -> None:
        known = self.brokers.get(broker)
        newest = max(replica.broker_epoch or 0, known.epoch if known is not None else 0)
        if broker_epoch < newest:
            raise NotLeader(f"broker {broker} fetches with epoch {broker_epoch}, it has {newest}")

    def __getitem__(self, broker: BrokerId) -> RemoteReplica:
        return self._replicas[broker]

    def slowest_end(
        self, end: Offset, *, in_sync: Collection[BrokerId], leader_end: Offset
    ) -> Offset:
        """The smallest end of the replicas that count for the high watermark, at most `end`."""
        for broker, replica in self._replicas.items():
            if replica.log_end < end and (
                broker in in_sync or self._is_about_to_join(broker, replica, leader_end)
            ):
                end = replica.log_end
        return end

    def lowest_log_start(self, log_start: Offset, *, electable: Collection[BrokerId]) -> Offset:
        """The smallest log start of the replicas that fetch or may be elected. Others delete before they join the ISR.

        A new replica that waits to be copied, or one with a failed disk, may not fetch for hours.
        """
        lowest = log_start
        for broker, replica in self._replicas.items():
            if replica.log_start < lowest and self._must_delete(broker, replica, electable):
                lowest = replica.log_start
        return lowest

    def _must_delete(
        self, broker: BrokerId, replica: RemoteReplica, electable: Collection[BrokerId]
    ) -> bool:
        return broker in electable or self._fetches(broker, replica)

    def _fetches(self, broker: BrokerId, replica: RemoteReplica) -> bool:
        return broker in self.brokers and replica.is_fetching(
            now_ms=self._now_ms, lag_ms_max=self.lag_ms_max
        )

    def readable(self, isr: Collection[BrokerId]) -> Iterable["ReadableReplica"]:
        """The followers that consumers may read from."""
        for broker, replica in self._replicas.items():
            if broker in isr and broker in self.brokers and replica.broker_epoch is not None:
                yield ReadableReplica(
                    broker=broker,
                    rack=self.brokers[broker].rack,
                    log_start=replica.log_start,
                    log_end=replica.log_end,
                )

    def lags(self, *, leader_end: Offset, log_start: Offset, now_ms: int) -> list[ReplicaLag]:
        """The lag of each follower."""
        return [
            replica.lag(broker, leader_end=leader_end, log_start=log_start, now_ms=now_ms)
            for broker, replica in self._replicas.items()
        ]

    # -- the ISR -----------------------------------------------------------------------------------------------------

    def joiners(
        self, others: Collection[BrokerId], *, low_watermark: Offset, high_watermark: Offset
    ) -> tuple[tuple[BrokerId, int], ...]:
        """The replicas that may join the ISR, except `others`, with their broker epochs."""
        return tuple(
            (broker, replica.broker_epoch)
            for broker, replica in self._replicas.items()
            if broker not in others
            and replica.broker_epoch is not None
            and self._can_join(broker, replica, high_watermark)
            and self._has_deleted(replica, low_watermark)
        )

    def _has_deleted(self, replica: RemoteReplica, low_watermark: Offset) -> bool:
        return replica.log_start >= low_watermark

    def is_lagging(self, broker: BrokerId, leader_end: Offset) -> bool:
        replica = self._replicas.get(broker)
        return replica is None or not self._is_caught_up(replica, leader_end)

    def has_lost_records(self, broker: BrokerId, high_watermark: Offset) -> bool:
        """True for an ISR member that lacks committed records, because its broker crashed and lost them."""
        replica = self._replicas.get(broker)
        return (
            replica is not None
            and replica.broker_epoch is not None
            and replica.log_end < high_watermark
        )

    def _can_join(self, broker: BrokerId, replica: RemoteReplica, high_watermark: Offset) -> bool:
        return (
            self._is_alive(broker, replica)
            and replica.is_fetching(now_ms=self._now_ms, lag_ms_max=self.lag_ms_max)
            and self._has_high_watermark(replica, high_watermark)
            and self._has_epoch_start(replica)
        )

    def _has_high_watermark(self, replica: RemoteReplica, high_watermark: Offset) -> bool:
        return replica.log_end >= high_watermark

    def _has_epoch_start(self, replica: RemoteReplica) -> bool:
        # The high watermark may be behind what was committed before this epoch; the epoch's first offset is not.
        return replica.log_end >= self._first_offset_of_epoch

    def _is_about_to_join(
        self, broker: BrokerId, replica: RemoteReplica, leader_end: Offset
    ) -> bool:
        """True for a caught-up replica, which holds back the high watermark: else it could not join under steady
        writes.

        False for a replica that has not fetched since it left the ISR: its broker may have removed it after a failed
        log.
        """
        return (
            self._is_alive(broker, replica)
            and replica.is_fetching(now_ms=self._now_ms, lag_ms_max=self.lag_ms_max)
            and self._is_caught_up(replica, leader_end)
        )

    def _is_caught_up(self, replica: RemoteReplica, leader_end: Offset) -> bool:
        return replica.is_caught_up(
            leader_end=leader_end, now_ms=self._now_ms, lag_ms_max=self.lag_ms_max
        )

    def _is_alive(self, broker: BrokerId, replica: RemoteReplica) -> bool:
        """True if the broker is registered, not shutting down, and fetching from the registered process (KIP-903)."""
        endpoint = self.brokers.get(broker)
        return (
            endpoint is not None
            and not endpoint.is_draining
            and endpoint.epoch == replica.broker_epoch
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableReplica:
    """A follower that is in sync and alive, according to its leader."""

    broker: BrokerId
    rack: str | None
    log_start: Offset
    log_end: Offset


def closest_replica(
    *,
    client_rack: str | None,
    leader_rack: str | None,
    offset: Offset,
    followers: Iterable[ReadableReplica],
) -> BrokerId | None:
    """The follower in its own rack that the consumer should read from (KIP-392); None for the leader.

    Only members of the ISR: a consumer sent to a lagging replica would lag for ever, as it is sent there each time.
    """
    if not client_rack or client_rack == leader_rack:
        return None
    same_rack = [
        follower
        for follower in followers
        if follower.rack == client_rack and follower.log_start <= offset <= follower.log_end
    ]
    if not same_rack:
        return None
    # The one with the highest log end; ties are broken by id, so that consumers do not switch between replicas.
    return max(same_rack, key=lambda follower: (follower.log_end, -follower.broker)).broker
