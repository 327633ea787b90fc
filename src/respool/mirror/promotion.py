"""Promotes mirrors to ordinary topics: producers may write to them, and open transactions are aborted.

1. `respool.mirror` is set to false, and every broker applies it: from then on no batch of the mirror is accepted.
2. Transactions that are open in the copy are aborted there. Their coordinator is in another cluster and will never end
   them here, so `read_committed` consumers would wait for their markers forever.
3. If the source was shrunk, the topic is shrunk to as many partitions: keys stay where their newer messages are.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from respool.client.kafka.admin import change_layout
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.configs import (
    ConfigResource,
    ConfigSetting,
    alter_configs,
    describe_configs,
)
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable
from respool.client.kafka.layout_descriptions import describe_layout
from respool.client.kafka.transactions import (
    OpenTransaction,
    describe_transactions,
    list_transactions,
    open_transactions,
    write_abort_marker,
)
from respool.mirror.cluster_link import (
    ACTIVE_CONFIG,
    MIRROR_CONFIG,
    is_mirror_in,
    mirror_config_fields,
)
from respool.mirror.clusters import as_operator_errors
from respool.model.operator_errors import NotFound, OperatorError, Unreachable
from respool.model.quantities import counted
from respool.wire.api_table import Api
from respool.wire.layout_change import LayoutChangeKind

APPLIED_SECONDS_MAX = 30.0
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    topic: str
    # False: it was an ordinary topic before; open transactions without a coordinator are aborted nevertheless.
    was_mirror: bool
    aborted: tuple[OpenTransaction, ...]
    # As many partitions take messages as at the source; None: all of them.
    active: int | None = None

    def __str__(self) -> str:
        text = "takes producers now" if self.was_mirror else "was not a mirror; it takes producers"
        if self.aborted:
            text += f"; aborted {counted(len(self.aborted), 'transaction')} left open by the source"
        if self.active is not None:
            text += f"; shrunk to {self.active} partitions, as the source was"
        return f"{self.topic} {text}"


def check_topics(cluster: Cluster, names: Sequence[str]) -> None:
    """
    Raises:
        NotFound: one of them does not exist; the hint names a topic with a similar name.
    """
    with as_operator_errors():
        topics = cluster.refresh_all()
    for name in names:
        if name not in topics:
            alike = get_close_matches(name, topics, n=1)
            hint = f"see: respool topic list --broker {cluster.bootstrap}"
            raise NotFound(
                f"there is no topic {name!r} at {cluster.bootstrap}",
                hint=f"did you mean {alike[0]}?" if alike else hint,
            )


def promote(cluster: Cluster, topic: str) -> Promotion:
    """Promote the topic. After an interruption, another call continues.

    Raises:
        NotFound: the topic does not exist.
        Unreachable: not every broker has applied the change in time.
        OperatorError: a partition does not return its open transactions.
    """
    with as_operator_errors():
        partitions = cluster.refresh(topic).leaders
        configs = describe_configs(cluster, ConfigResource.TOPIC, [topic])[topic]
        if MIRROR_CONFIG not in configs:
            raise OperatorError(f"the broker at {cluster.bootstrap} does not support mirror topics")
        was_mirror = configs[MIRROR_CONFIG].value == "true"
        if was_mirror:
            alter_configs(cluster, ConfigResource.TOPIC, topic, values={MIRROR_CONFIG: "false"})
        _wait_until_applied(cluster, topic)
        found, unasked = open_transactions(cluster, [(topic, number) for number in partitions])
        left_open = _without_coordinator(cluster, found)
        for one in left_open:
            write_abort_marker(cluster, one)
    for (name, number), why in unasked.items():
        raise OperatorError(
            f"{name}/{number} does not say which transactions are open in it: {why}",
            hint="run the same command again when it answers",
        )
    active = _shrink_as_source(cluster, topic, configs, len(partitions))
    return Promotion(topic=topic, was_mirror=was_mirror, aborted=tuple(left_open), active=active)


def _shrink_as_source(
    cluster: Cluster, topic: str, configs: Mapping[str, ConfigSetting], partitions: int
) -> int | None:
    """Shrink the topic to what the mirror has noted. Return to how many partitions; None: it was not shrunk."""
    noted = configs.get(ACTIVE_CONFIG)
    active = int(noted.value or 0) if noted is not None else 0
    if not 0 < active < partitions:
        return None
    deadline = time.monotonic() + APPLIED_SECONDS_MAX
    with as_operator_errors():
        while not _is_shrunk(cluster, topic, active):
            try:
                # The number may be none that keeps keys together: that was decided at the source.
                kind = LayoutChangeKind.SHRINK_UNKEYED
                change_layout(cluster, topic, kind, count=active)
            except BrokerRefused as error:
                if not error.retriable and error.code != Code.reassignment_in_progress:
                    raise
                if time.monotonic() > deadline:
                    raise
                cluster.sleep(POLL_SECONDS)
        # Done once: the topic may grow again.
        alter_configs(cluster, ConfigResource.TOPIC, topic, deleted=[ACTIVE_CONFIG])
    return active


def _is_shrunk(cluster: Cluster, topic: str, active: int) -> bool:
    layout = describe_layout(cluster, topic)
    return layout is not None and layout.active <= active


def _without_coordinator(
    cluster: Cluster, found: Sequence[OpenTransaction]
) -> list[OpenTransaction]:
    """Transactions that no coordinator of this cluster will end; others were begun by producers of this cluster."""
    if not found:
        return []
    listed = list_transactions(cluster, producer_ids={one.producer_id for one in found})
    described = describe_transactions(cluster, [one.transactional_id for one in listed])
    known = {one.producer_id: one.partitions for one in described.values()}
    return [one for one in found if one.place not in known.get(one.producer_id, ())]


def _wait_until_applied(cluster: Cluster, topic: str) -> None:
    """Wait until every broker says that the topic is not a mirror: any of them may lead one of its partitions."""
    deadline = time.monotonic() + APPLIED_SECONDS_MAX
    while not _is_applied(cluster, topic):
        if time.monotonic() > deadline:
            raise Unreachable(
                f"not every broker knows yet that {topic} is no longer a mirror",
                hint="run the same command again when all of them answer",
            )
        cluster.sleep(POLL_SECONDS)


def _is_applied(cluster: Cluster, topic: str) -> bool:
    fields = mirror_config_fields(topic)
    try:
        brokers = cluster.refresh_brokers()
        replies = [cluster.request(one, Api.DESCRIBE_CONFIGS, fields) for one in brokers]
    except BrokerUnreachable:
        return False
    return all(is_mirror_in(reply) is False for reply in replies)
