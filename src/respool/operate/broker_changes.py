"""Drain, remove and add a broker: the decisions and their guarded writes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from respool.cluster import broker_requests
from respool.cluster.broker_requests import broker_load, expendable, unplaceable
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.status_document import waits_for
from respool.cluster.view import ClusterView
from respool.model.errors import BrokerIsLive, InvalidReplicationFactor, InvalidRequest
from respool.model.ids import BrokerId, TopicPartition
from respool.model.operator_errors import OperatorError
from respool.model.quantities import counted
from respool.operate.cluster_store import ClusterAddress, ClusterStore
from respool.operate.move_progress import POLL_S, OpenDisplay, wait_until_none_left

# -- drain -----------------------------------------------------------------------------------------------------------


class StuckReplica(NamedTuple):
    """Why a replica cannot move: `name` for programs, `text` for people."""

    name: str
    text: str


async def drain_broker(cluster: ClusterStore, broker: BrokerId) -> ClusterView:
    """Mark the broker as drained; the controller moves its replicas to the others.

    Raises:
        OperatorError: too few brokers would remain for a topic's replication factor.
    """
    return await cluster.change(partial(_drain, broker=broker))


async def wait_until_drained(
    cluster: ClusterStore, broker: BrokerId, display: OpenDisplay
) -> ClusterView:
    """Wait until the broker has no replicas, or only stuck ones."""
    return await wait_until_none_left(
        cluster,
        lambda view: replica_count(view, broker),
        lambda view: len(stuck_replicas(view, broker)),
        doing=f"draining broker {broker}",
        display=display,
    )


def replica_count(view: ClusterView, broker: BrokerId) -> int:
    return broker_load(view, broker).replicas


def stuck_replicas(view: ClusterView, broker: BrokerId) -> dict[TopicPartition, StuckReplica]:
    """The broker's replicas that cannot move now, with the reason."""
    without_taker = unplaceable(view, broker)
    found = {}
    for topic, number, image in view.partitions():
        of = TopicPartition(topic.name, number)
        if broker not in image.replicas:
            continue
        if why := waits_for(view, image):
            found[of] = StuckReplica("offline", f"is offline, and waits for {why}")
        elif of in without_taker:
            found[of] = StuckReplica(
                "no_broker_free",
                "has a replica on each of the other brokers that run: another one is needed",
            )
    return found


def _drain(view: ClusterView, *, broker: BrokerId) -> list[GuardedWrite]:
    try:
        return broker_requests.drain(view, broker)
    except InvalidReplicationFactor as error:
        raise OperatorError(str(error), hint="start another broker first") from error


# -- remove ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedBroker:
    """What happens to the replicas of a removed broker."""

    replicas: int
    # Partitions of which only this broker has all records.
    lost: list[TopicPartition]
    # Replicas that cannot be recreated until another broker joins.
    waiting: int
    # Replicas being recreated on other brokers.
    recreated: int


async def remove_broker(cluster: ClusterStore, broker: BrokerId, *, force: bool) -> RemovedBroker:
    """Remove a stopped broker from the cluster; with `force` also if it has replicas.

    Raises:
        OperatorError: the broker runs, or it has replicas and `force` is not set.
    """
    decide = partial(_remove, broker=broker, force=force, address=cluster.address)
    view = await cluster.change(decide)
    replicas, lost = replica_count(view, broker), only_replicas(view, broker)
    waiting = len(unplaceable(view, broker).difference(lost))
    recreated = replicas - len(lost) - waiting - len(expendable(view, broker).difference(lost))
    return RemovedBroker(replicas=replicas, lost=lost, waiting=waiting, recreated=recreated)


def only_replicas(view: ClusterView, broker: BrokerId) -> list[TopicPartition]:
    """Partitions of which no other replica has all records, so that the replica cannot be recreated."""
    return [
        TopicPartition(topic.name, number)
        for topic, number, image in view.partitions()
        if broker in image.replicas
        and not {*image.isr, *image.elr, image.last_leader}.difference({broker, None})
    ]


def _remove(
    view: ClusterView, *, broker: BrokerId, force: bool, address: ClusterAddress
) -> list[GuardedWrite]:
    try:
        return broker_requests.remove(view, broker, is_forced=force)
    except BrokerIsLive as error:
        raise OperatorError(
            f"broker {broker} is up", hint=_before_removal(view, broker, address)
        ) from error
    except InvalidRequest as error:
        first = f"send them elsewhere with: {address.command('drain', broker)}"
        if unplaceable(view, broker):
            first = "start another broker first: too few are left for all of them"
        raise OperatorError(
            f"broker {broker} holds {counted(replica_count(view, broker), 'replica')}",
            hint=f"{first}; "
            "if it will never come back, add --force: they are recreated from the other replicas",
        ) from error


def _before_removal(view: ClusterView, broker: BrokerId, address: ClusterAddress) -> str:
    """The steps that remain before a running broker can be removed."""
    entry = view.registry.get(broker)
    if entry is None or not (entry.is_drained or entry.is_removed):
        drain = address.command("drain", broker)
        return f"drain it with: {drain}; then stop it; then remove it"
    held = replica_count(view, broker)
    if held:
        left = counted(held, "replica")
        look = address.command("status")
        return f"it is being drained, {left} to go: {look}; then stop it; then remove it"
    return "it is drained: stop it, then remove it"


# -- add -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedBroker:
    # It was drained or removed before and may now have replicas again.
    admitted: bool
    # It has registered before.
    known: bool
    live: bool


async def add_broker(cluster: ClusterStore, broker: BrokerId) -> AddedBroker:
    """Admit a drained or removed broker again; a new broker joins when it is started."""
    view = (await cluster.read()).view
    entry = view.registry.get(broker)
    admitted = entry is not None and (entry.is_removed or entry.is_drained)
    if admitted:
        await cluster.change(lambda view: broker_requests.admit(view, broker))
    return AddedBroker(admitted=admitted, known=entry is not None, live=view.is_live(broker))


async def wait_until_live(
    cluster: ClusterStore, broker: BrokerId, *, on_wait: Callable[[], None]
) -> None:
    """Wait until the broker can take replicas; `on_wait` is called once if it has to wait."""
    has_waited = False
    while not (await cluster.read()).view.can_take(broker):
        if not has_waited:
            on_wait()
            has_waited = True
        await asyncio.sleep(POLL_S)
