"""Asks brokers for the state of their cluster, within a time limit: what `cluster_overview.py` describes.

Any broker will do, of Respool or of Kafka. Each question is independent: one without an answer becomes a gap, and the
others are still answered. When the time is up, the client is interrupted, and all open questions become gaps.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum

from respool.client.kafka import configs, groups, list_offsets, replicas, transactions
from respool.client.kafka.admin import ClusterDescription, describe_cluster
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import COORDINATOR_RETRIED, Code
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    UnknownPartition,
    UnknownTopic,
    Untrusted,
    VersionUnsupported,
)
from respool.client.kafka.groups import GroupListing, OffsetAndMetadata
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import Place, TopicMetadata
from respool.client.kafka.replicas import LogDir, Reassignment
from respool.model.operator_errors import Unreachable
from respool.model.quantities import counted
from respool.operate.cluster_admin import make_first_contact
from respool.operate.errors import client_errors_translated
from respool.operate.group_operations import PartitionLag, total_lag
from respool.operate.topic_description import MIN_ISR

# The default of Kafka's transaction.max.timeout.ms: coordinators abort transactions of this age.
LONG_OPEN_MS = 15 * 60_000
_OPEN = (transactions.ONGOING, *transactions.PREPARED)
_ASKED_AT_ONCE = 16
_TOPICS_PER_REQUEST = 500
# Ctrl-C just before a wait begins does not interrupt it: Python notices the signal when the wait ends.
_WAIT_S_MAX = 0.5
_GROUPS_AT_ONCE = 8


class GapReason(StrEnum):
    # The time limit of the survey was reached.
    TIMEOUT = "timeout"
    # A broker does not answer.
    UNREACHABLE = "unreachable"
    # TLS or the login failed.
    UNTRUSTED = "untrusted"
    # A broker answered with an error, for example of its disk.
    REFUSED = "refused"
    # A broker answered that this client is not authorized.
    UNAUTHORIZED = "unauthorized"
    # The cluster is changing: a coordinator is moving or loading its groups, or a topic was deleted in the meantime.
    TRANSIENT = "transient"
    # The brokers do not serve the request.
    UNSUPPORTED = "unsupported"


_REASONS: Mapping[type[ClientError], GapReason] = {
    ClientClosed: GapReason.TIMEOUT,
    BrokerUnreachable: GapReason.UNREACHABLE,
    Untrusted: GapReason.UNTRUSTED,
    VersionUnsupported: GapReason.UNSUPPORTED,
    UnknownTopic: GapReason.TRANSIENT,
    UnknownPartition: GapReason.TRANSIENT,
}
# Other codes: REFUSED.
_REASONS_BY_CODE: Mapping[int, GapReason] = {
    Code.topic_authorization_failed: GapReason.UNAUTHORIZED,
    Code.group_authorization_failed: GapReason.UNAUTHORIZED,
    Code.cluster_authorization_failed: GapReason.UNAUTHORIZED,
    Code.transactional_id_authorization_failed: GapReason.UNAUTHORIZED,
    Code.unknown_topic_or_partition: GapReason.TRANSIENT,
    **dict.fromkeys(COORDINATOR_RETRIED, GapReason.TRANSIENT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that could not be learned."""

    # 'topics', 'log_dirs', 'transactions', 'groups', 'lag', 'min_isr' or 'moving'.
    subject: str
    # None: it does not concern a single broker.
    broker: int | None = None
    reason: GapReason
    message: str


@dataclass(slots=True, kw_only=True)
class Survey:
    cluster: ClusterDescription
    topics: Mapping[str, TopicMetadata]
    # Of topics with replicas that are out of sync; the others cannot be below it.
    min_isr: dict[str, int] = field(default_factory=dict)
    reassignments: Mapping[Place, Reassignment] = field(default_factory=dict)
    # By broker.
    log_dirs: dict[int, list[LogDir]] = field(default_factory=dict)
    # The open transactions that each broker coordinates, and how many of them have been open for LONG_OPEN_MS.
    open_transactions: dict[int, int] = field(default_factory=dict)
    long_open_transactions: dict[int, int] = field(default_factory=dict)
    # None: no broker listed its groups.
    groups: list[GroupListing] | None = None
    # In messages, by group.
    lags: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


def survey(cluster: Cluster, *, seconds: float) -> Survey:
    """Learn as much as possible in this time, which includes the first contact with a broker.

    The client cannot be used afterwards, only closed.

    Raises:
        Unreachable: no broker answers with the list of brokers and topics.
        OperatorError: the brokers refuse to list them, or TLS or the login failed.
    """
    alarm = threading.Timer(seconds, cluster.interrupt)
    alarm.daemon = True
    alarm.start()
    try:
        found = _read_metadata(cluster, seconds=seconds)
        return _Surveyor(cluster, found, seconds=seconds).run()
    finally:
        alarm.cancel()


def _read_metadata(cluster: Cluster, *, seconds: float) -> Survey:
    with client_errors_translated():
        try:
            make_first_contact(cluster)
            described = cluster.retrying(lambda: describe_cluster(cluster))
            topics, errors = cluster.retrying(cluster.refresh_all_or_errors)
        except ClientClosed as error:
            raise Unreachable(
                f"the brokers at {cluster.bootstrap} did not list brokers and topics within {seconds:g} s",
                hint="give them more time: --timeout '1 minute'",
            ) from error
    gaps = [
        Gap(subject="topics", reason=_reason_of(error), message=str(error))
        for _, error in sorted(errors.items())
    ]
    return Survey(cluster=described, topics=topics, gaps=gaps)


class _Surveyor:
    def __init__(self, cluster: Cluster, found: Survey, *, seconds: float) -> None:
        self._cluster = cluster
        self._found = found
        # Silent brokers hold up the lags of groups for half of the survey's time at most.
        self._half_s = seconds / 2
        # By group; and the groups that there was no time for.
        self._committed: dict[str, dict[Place, OffsetAndMetadata]] = {}
        self._late_groups: list[str] = []

    def run(self) -> Survey:
        brokers = sorted(self._found.cluster.brokers)
        with (
            ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as pool,
            ThreadPoolExecutor(max_workers=_GROUPS_AT_ONCE) as group_pool,
        ):
            try:
                # Brokers without an answer hold up the threads that ask them, so what concerns all brokers comes first.
                listing = pool.submit(self._groups)
                tasks = [listing, pool.submit(self._health), pool.submit(self._moving)]
                tasks += [pool.submit(self._log_dirs, one) for one in brokers]
                tasks += [pool.submit(self._transactions, one) for one in brokers]
                # Last, on threads of its own: a broker that answers thousands of requests for offsets would keep the
                # other questions waiting, because they share its connection.
                _wait_for(tasks, seconds=self._half_s)
                _wait_for([listing])
                names = [one.name for one in self._found.groups or ()]
                _wait_for(
                    group_pool.submit(self._fetch_offsets, names[first::_GROUPS_AT_ONCE])
                    for first in range(_GROUPS_AT_ONCE)
                )
                _wait_for([group_pool.submit(self._lags)])
                _wait_for(tasks)
            except BaseException:
                # Ctrl-C: leaving the pool waits for its threads.
                self._cluster.interrupt()
                raise
        self._found.gaps.sort(
            key=lambda gap: (gap.subject, -1 if gap.broker is None else gap.broker)
        )
        return self._found

    def _learn(
        self, subject: str, fetch: Callable[[], None], *, broker: int | None = None, what: str = ""
    ) -> bool:
        """Call `fetch`; record a gap and return False if it gets no answer. `what` begins the gap's message."""
        try:
            fetch()
        except ClientError as error:
            reason = _reason_of(error)
            text = "no answer in time" if reason is GapReason.TIMEOUT else str(error)
            if reason is GapReason.TIMEOUT and subject == "lag":
                # That tells nothing about the broker: there may be thousands of groups.
                broker = None
            self._gap(subject, reason, f"{what}: {text}" if what else text, broker=broker)
            return False
        return True

    def _gap(
        self, subject: str, reason: GapReason, message: str, *, broker: int | None = None
    ) -> None:
        self._found.gaps.append(Gap(subject=subject, broker=broker, reason=reason, message=message))

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _health(self) -> None:
        lagging = [
            name
            for name, topic in sorted(self._found.topics.items())
            if any(len(topic.in_sync[one]) < len(topic.replicas[one]) for one in topic.leaders)
        ]
        for first in range(0, len(lagging), _TOPICS_PER_REQUEST):
            names = lagging[first : first + _TOPICS_PER_REQUEST]
            self._learn("min_isr", lambda names=names: self._read_min_isr(names))  # type: ignore[misc]

    def _read_min_isr(self, names: list[str]) -> None:
        def fetch() -> dict[str, dict[str, configs.ConfigSetting]] | None:
            try:
                return configs.describe_configs(
                    self._cluster, configs.ConfigResource.TOPIC, names, keys=[MIN_ISR]
                )
            except BrokerRefused as error:
                if error.code != Code.unknown_topic_or_partition:
                    raise
                return None

        described = self._cluster.retrying(fetch)
        if described is None:
            # One of them has been deleted in the meantime.
            if len(names) > 1:
                self._read_min_isr(names[: len(names) // 2])
                self._read_min_isr(names[len(names) // 2 :])
            return
        for name, entries in described.items():
            value = entries[MIN_ISR].value if MIN_ISR in entries else None
            self._found.min_isr[name] = int(value or 1)

    def _moving(self) -> None:
        def fetch() -> None:
            self._found.reassignments = replicas.list_reassignments(self._cluster)

        self._learn("moving", fetch)

    # -- brokers -------------------------------------------------------------------------------------------------------

    def _log_dirs(self, broker: int) -> None:
        def fetch() -> None:
            self._found.log_dirs[broker] = self._cluster.retrying(
                lambda: replicas.describe_log_dirs(self._cluster, broker)
            )

        self._learn("log_dirs", fetch, broker=broker)

    def _transactions(self, broker: int) -> None:
        def fetch() -> None:
            found = self._cluster.retrying(
                lambda: transactions.transactions_at(self._cluster, broker, states=_OPEN)
            )
            self._found.open_transactions[broker] = len(found)
            if not found:
                self._found.long_open_transactions[broker] = 0

        def fetch_long_open() -> None:
            found = transactions.transactions_at(
                self._cluster, broker, states=_OPEN, open_longer_than_ms=LONG_OPEN_MS
            )
            self._found.long_open_transactions[broker] = len(found)

        if (
            self._learn("transactions", fetch, broker=broker)
            and broker not in self._found.long_open_transactions
        ):
            self._learn("transactions", fetch_long_open, broker=broker)

    # -- groups --------------------------------------------------------------------------------------------------------

    def _groups(self) -> None:
        def fetch() -> None:
            listed = groups.list_groups(self._cluster)
            if not self._found.cluster.brokers.keys() <= listed.unheard.keys():
                self._found.groups = listed.groups
            for broker, error in listed.unheard.items():
                self._gap("groups", _reason_of(error), str(error), broker=broker)
            if listed.unled:
                moving = "the coordinators of some groups are moving"
                self._gap("groups", GapReason.TRANSIENT, moving)

        self._learn("groups", fetch)

    def _fetch_offsets(self, names: Iterable[str]) -> None:
        for name in names:

            def fetch(name: str = name) -> None:
                try:
                    self._committed[name] = groups.fetch_offsets(self._cluster, name)
                except ClientClosed:
                    self._late_groups.append(name)

            self._learn("lag", fetch, what=f"offsets of group {name}")

    def _lags(self) -> None:
        committed = self._committed
        if self._late_groups:
            message = f"no time for the offsets of {counted(len(self._late_groups), 'group')}"
            self._gap("lag", GapReason.TIMEOUT, message)
        ranges = self._ranges(committed.values())
        for name, places in committed.items():
            lags = [
                PartitionLag(
                    topic=place[0],
                    partition=place[1],
                    committed=at.offset,
                    held=ranges.get(place),
                )
                for place, at in places.items()
            ]
            # Known for none of its partitions: the lag is unknown, not 0.
            if not lags or any(one.held is not None for one in lags):
                self._found.lags[name] = total_lag(lags)

    def _ranges(
        self, committed: Iterable[Mapping[Place, OffsetAndMetadata]]
    ) -> dict[Place, OffsetRange]:
        """The offset ranges of these partitions that exist and have a leader."""
        every = [place for each in committed for place in each]
        topics = dict(self._found.topics)
        unlisted = sorted({topic for topic, _ in every} - topics.keys())
        if unlisted:
            # Views are found by their names.
            self._learn("lag", lambda: topics.update(self._cluster.refresh_named(unlisted)))
        places = {
            (topic, number)
            for topic, number in every
            if topic in topics and topics[topic].leaders.get(number) is not None
        }
        found: dict[Place, OffsetRange] = {}
        led: dict[int, list[Place]] = {}
        self._learn("lag", lambda: led.update(list_offsets.leaders_of(self._cluster, places)))
        for broker, ones in led.items():

            def fetch(ones: list[Place] = ones) -> None:
                # Up to the log end: a read_uncommitted group may be beyond the last stable offset.
                found.update(
                    list_offsets.offset_ranges(
                        self._cluster, ones, isolation="read_uncommitted", led_only=True
                    )
                )

            self._learn("lag", fetch, broker=broker, what=f"log ends on broker {broker}")
        return found


def _wait_for(tasks: Iterable[Future[None]], *, seconds: float = math.inf) -> None:
    """Wait for tasks, and raise the first error of one that is done. Later ones may still be running then."""
    until = time.monotonic() + seconds
    for task in list(tasks):
        while not task.done() and (left := until - time.monotonic()) > 0:
            wait((task,), timeout=min(left, _WAIT_S_MAX))
        if task.done():
            task.result()


def _reason_of(error: ClientError) -> GapReason:
    if isinstance(error, BrokerRefused):
        return _REASONS_BY_CODE.get(error.code, GapReason.REFUSED)
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return reason
    return GapReason.REFUSED
