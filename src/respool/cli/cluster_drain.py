"""The work of `respool cluster drain`: a broker's replicas go elsewhere, and those that cannot are named."""

from functools import partial
from typing import NamedTuple

from respool.cli import cluster_store, output
from respool.cli.cluster_address import ClusterAddress
from respool.cli.cluster_store import ClusterStore
from respool.cli.cluster_wait import wait_until_none_left
from respool.cluster import broker_requests
from respool.cluster.broker_requests import holdings, homeless
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.status import waits_for
from respool.cluster.view import ClusterView
from respool.model.errors import InvalidReplicationFactor
from respool.model.ids import BrokerId, TopicPartition
from respool.model.operator_errors import OperatorError


def drain(address: ClusterAddress, broker: BrokerId, *, wait: bool, as_json: bool) -> None:
    look = address.command("status")

    async def work(cluster: ClusterStore) -> ClusterView:
        view = await cluster.change(partial(_drain, broker=broker))
        left = holdings(view, broker).replicas
        if wait and left:
            output.note(
                f"the {output.counted(left, 'replica')} of broker {broker} are going elsewhere"
            )
            view = await wait_until_none_left(
                cluster,
                lambda view: holdings(view, broker).replicas,
                lambda view: len(stuck(view, broker)),
                doing=f"draining broker {broker}",
                unit="replicas moved",
            )
        return view

    try:
        view = cluster_store.run(address, work)
    except KeyboardInterrupt:
        output.note(
            f"broker {broker} goes on being drained; look with: {look}; "
            f"undo it with: {address.command('add', broker)}"
        )
        raise
    left, staying = holdings(view, broker).replicas, stuck(view, broker)
    if as_json:
        named = [
            {"topic": of.topic, "partition": of.partition, "why": why.name}
            for of, why in staying.items()
        ]
        output.print_json({"broker": broker, "replicas_left": left, "cannot_go": named})
    if left and wait:
        _raise_stuck(broker, staying, look)
    if as_json:
        return
    if left:
        output.note(
            f"broker {broker} is being drained: {output.counted(left, 'replica')} to go elsewhere; look with: {look}"
        )
    else:
        then = address.command("remove", broker)
        if view.is_live(broker):
            then = f"stop it, then: {then}"
        output.note(f"broker {broker} holds nothing any more: {then}")


class Stuck(NamedTuple):
    """Why a replica cannot go: `name` for programs, `text` for people."""

    name: str
    text: str


def stuck(view: ClusterView, broker: BrokerId) -> dict[TopicPartition, Stuck]:
    """Which of its replicas cannot go as things are, and why."""
    without_taker = homeless(view, broker)
    found = {}
    for topic, number, image in view.partitions():
        of = TopicPartition(topic.name, number)
        if broker not in image.replicas:
            continue
        if why := waits_for(view, image):
            found[of] = Stuck("offline", f"is offline, and waits for {why}")
        elif of in without_taker:
            found[of] = Stuck(
                "no_broker_free",
                "has a replica on each of the other brokers that run: another one is needed",
            )
    return found


def _raise_stuck(broker: BrokerId, staying: dict[TopicPartition, Stuck], look: str) -> None:
    output.note_some([f"{of} {why.text}" for of, why in staying.items()])
    raise OperatorError(
        f"broker {broker} is drained but for {output.counted(len(staying), 'replica')}, which cannot go",
        hint=f"they go by themselves once they can; look with: {look}",
    )


def _drain(view: ClusterView, *, broker: BrokerId) -> list[GuardedWrite]:
    try:
        return broker_requests.drain(view, broker)
    except InvalidReplicationFactor as error:
        raise OperatorError(str(error), hint="start another broker first") from error
