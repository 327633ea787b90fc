"""The work of `respool cluster remove` and `add`: what an operator does with one broker."""

import asyncio
import shlex
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from respool.cli import cluster_store, output
from respool.cli.asking import confirm
from respool.cli.cluster_address import ClusterAddress
from respool.cli.cluster_balance import balance as balance_cluster
from respool.cli.cluster_store import ClusterStore
from respool.cli.cluster_wait import POLL_S
from respool.cluster import broker_requests
from respool.cluster.broker_requests import done_without, holdings, homeless
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.ids import BrokerId, TopicPartition
from respool.model.operator_errors import OperatorError

# -- remove ----------------------------------------------------------------------------------------------------------


def remove(
    address: ClusterAddress, broker: BrokerId, *, force: bool, yes: bool, as_json: bool
) -> None:
    async def look(cluster: ClusterStore) -> ClusterView:
        return (await cluster.look()).view

    if force and not yes:
        # Looked at before, for nobody should be asked while a connection waits.
        _confirm_loss(cluster_store.run(address, look), broker)

    async def work(cluster: ClusterStore) -> ClusterView:
        decide = partial(_remove, broker=broker, force=force, address=address)
        return await cluster.change(decide)

    view = cluster_store.run(address, work)
    held, lost = holdings(view, broker).replicas, _only_there(view, broker)
    waiting = len(homeless(view, broker).difference(lost))
    if as_json:
        named = [{"topic": of.topic, "partition": of.partition} for of in lost]
        output.print_json(
            {
                "broker": broker,
                "removed": True,
                "replicas_left": held,
                "wait_for_a_broker": waiting,
                "stays_offline": named,
            }
        )
        return
    anew = held - len(lost) - waiting - len(done_without(view, broker).difference(lost))
    some = f"{anew:,} of " if anew < held else ""
    output.note(
        f"broker {broker} is out of the cluster"
        + (f"; made anew elsewhere: {some}its {output.counted(held, 'replica')}" if anew else "")
        + f"; let it in again with: {address.command('add', broker)}"
    )
    if waiting:
        output.note(
            f"{output.counted(waiting, 'replica')} cannot be made anew until another broker comes: too few are left"
        )
    if lost:
        _name(lost)
        output.note(
            f"{output.counted(len(lost), 'partition')} will stay offline until broker {broker} comes back"
        )


def _remove(
    view: ClusterView, *, broker: BrokerId, force: bool, address: ClusterAddress
) -> list[GuardedWrite]:
    if view.is_live(broker):
        raise OperatorError(f"broker {broker} is up", hint=_before_removal(view, broker, address))
    held = holdings(view, broker).replicas
    entry = view.registry.get(broker)
    if held and not force and entry is not None and not entry.is_removed:
        first = f"send them elsewhere with: {address.command('drain', broker)}"
        if homeless(view, broker):
            first = "start another broker first: too few are left for all of them"
        raise OperatorError(
            f"broker {broker} holds {output.counted(held, 'replica')}",
            hint=f"{first}; "
            "if it will never come back, add --force: they are made anew from the other replicas",
        )
    return broker_requests.remove(view, broker, is_forced=force)


def _before_removal(view: ClusterView, broker: BrokerId, address: ClusterAddress) -> str:
    """What is still to be done with a broker that is up."""
    entry = view.registry.get(broker)
    if entry is None or not (entry.is_drained or entry.is_removed):
        drain = address.command("drain", broker)
        return f"drain it with: {drain}; then stop it; then remove it"
    held = holdings(view, broker).replicas
    if held:
        left = output.counted(held, "replica")
        look = address.command("status")
        return f"it is being drained, {left} to go: {look}; then stop it; then remove it"
    return "it is drained: stop it, then remove it"


def _confirm_loss(view: ClusterView, broker: BrokerId) -> None:
    lost = _only_there(view, broker)
    if not lost or view.is_live(broker):
        return
    _name(lost)
    confirm(
        f"{output.counted(len(lost), 'partition')} will stay offline without broker {broker}. Remove it?",
        why=f"{output.counted(len(lost), 'partition')} would stay offline without broker {broker}",
    )


def _only_there(view: ClusterView, broker: BrokerId) -> list[TopicPartition]:
    """Nobody can make anew what only this broker has all of."""
    return [
        TopicPartition(topic.name, number)
        for topic, number, image in view.partitions()
        if broker in image.replicas
        and not {*image.isr, *image.elr, image.last_leader}.difference({broker, None})
    ]


def _name(lost: Sequence[TopicPartition]) -> None:
    output.note_some([f"{of}: no other replica has everything" for of in lost])


# -- add -------------------------------------------------------------------------------------------------------------


class Added(NamedTuple):
    balance: bool
    yes: bool
    as_json: bool


def add(address: ClusterAddress, broker: BrokerId, how: Added) -> None:
    async def work(cluster: ClusterStore) -> None:
        view = (await cluster.look()).view
        entry = view.registry.get(broker)
        is_admitted = entry is not None and (entry.is_removed or entry.is_drained)
        if is_admitted:
            await cluster.change(lambda view: broker_requests.admit(view, broker))
        _tell(view, broker, address, how, is_admitted=is_admitted)
        if how.as_json and not how.balance:
            is_known = entry is not None
            output.print_json(
                {
                    "broker": broker,
                    "admitted": is_admitted,
                    "known": is_known,
                    "up": view.is_live(broker),
                }
            )
        if how.balance:
            await _wait_until_up(cluster, broker)

    cluster_store.run(address, work)
    if how.balance:
        balance_cluster(address, yes=how.yes, as_json=how.as_json)


def _tell(
    view: ClusterView, broker: BrokerId, address: ClusterAddress, how: Added, *, is_admitted: bool
) -> None:
    if is_admitted:
        output.note(f"broker {broker} may hold replicas again")
    elif broker in view.registry and view.is_live(broker):
        output.note(f"broker {broker} is in the cluster and up")
    else:
        output.note(
            f"broker {broker} {'is down' if broker in view.registry else 'is new'}; it joins when it is started:"
        )
    if not view.is_live(broker):
        joined_by = _joined_by(address)
        output.note(
            f"  respool serve --broker-id {broker} {joined_by} --data DIR --listen HOST:PORT"
        )
    if not how.balance:
        balance = address.command("balance")
        output.note(f"then give it its part of the partitions with: {balance}")


def _joined_by(address: ClusterAddress) -> str:
    """The flags that lead a new broker to the cluster this command was asked of."""
    settings, flags = address.settings, list(address.flags)
    if "--config" not in flags:
        # Where it is may stand in this shell's environment, and the broker is started elsewhere.
        for name, value in {
            "cluster": settings.metadata_store.cluster,
            "etcd": settings.metadata_store.addresses,
        }.items():
            if f"--{name}" not in flags and not any(one.startswith(f"{name}=") for one in flags):
                flags = [f"--{name}", value, *flags]
    return shlex.join(flags)


async def _wait_until_up(cluster: ClusterStore, broker: BrokerId) -> None:
    is_told = False
    while True:
        if (await cluster.look()).view.can_take(broker):
            return
        if not is_told:
            output.note(f"waiting until broker {broker} is up")
            is_told = True
        await asyncio.sleep(POLL_S)
