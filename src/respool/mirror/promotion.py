"""Turns mirrors into ordinary topics: producers may write to them, and nothing that the mirror cut off stays open.

1. The setting is taken away, and every broker has heard of it: from then on no batch of the mirror is taken.
2. Transactions that are open in the copy are aborted there. Their coordinator is in another cluster and will never end
   them here; left open, readers of committed messages would wait before them for ever.
"""

import asyncio
import time
from dataclasses import dataclass

from respool.cli.errors import BrokerUnreachable
from respool.cli.kafka import Cluster
from respool.cli.kafka_transactions import Transactions
from respool.cli.transaction_hanging import Lookout
from respool.client.kafka.transactions import OpenTransaction
from respool.mirror.cluster_link import ClusterLink, LinkError
from respool.mirror.target_topics import MIRROR_SETTING
from respool.model.operator_errors import OperatorError
from respool.model.quantities import counted

HEARD_SECONDS_MAX = 30.0
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    topic: str
    # Else nothing was changed, but transactions that were left open are ended all the same.
    was_mirror: bool
    aborted: tuple[OpenTransaction, ...]

    def in_words(self) -> str:
        said = "takes producers now" if self.was_mirror else "was not a mirror; it takes producers"
        cut = counted(len(self.aborted), "transaction")
        ended = f"; aborted {cut} left open by the source" if self.aborted else ""
        return f"{self.topic} {said}{ended}"

    def document(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "was_mirror": self.was_mirror,
            "aborted": [
                {
                    "partition": one.partition,
                    "start_offset": one.start_offset,
                    "producer_id": one.producer_id,
                }
                for one in self.aborted
            ],
        }


def promote(cluster: Cluster, topic: str) -> Promotion:
    """
    Raises:
        NotFound: there is no such topic.
        BrokerUnreachable: not every broker has heard of it in time; run it again.
        OperatorError: a partition could not say what is open in it.
    """
    partitions = cluster.topic(topic).partitions
    settings = {one.name: one.value for one in cluster.settings([topic])[topic]}
    if MIRROR_SETTING not in settings:
        raise OperatorError(f"the broker at {cluster.broker} has no mirrors")
    was_mirror = settings[MIRROR_SETTING] == "true"
    if was_mirror:
        cluster.alter_topic(topic, settings={MIRROR_SETTING: "false"}, unset=[])
    asyncio.run(_wait_until_heard(cluster.broker, topic))
    transactions = Transactions(cluster)
    places = [(topic, number) for number in partitions]
    found = _left_behind(transactions, transactions.open_writes(places))
    for write in found:
        transactions.write_abort_marker(write)
    if transactions.unasked:
        (name, number), why = next(iter(transactions.unasked.items()))
        raise OperatorError(
            f"{name}/{number} does not say whether transactions are open there: {why}",
            hint="run the same command again when it answers",
        )
    return Promotion(topic=topic, was_mirror=was_mirror, aborted=tuple(found))


def _left_behind(transactions: Transactions, found: list[OpenTransaction]) -> list[OpenTransaction]:
    """Those that no coordinator of this cluster will end. Others may have been begun since."""
    owners = Lookout(transactions).owners(found) if found else {}
    return [
        one
        for one in found
        if one.producer_id not in owners or one.place not in owners[one.producer_id].partitions
    ]


async def _wait_until_heard(broker: str, topic: str) -> None:
    """Until every broker says that the topic is no mirror: any of them may lead a partition of it."""
    link = ClusterLink("the cluster", broker)
    deadline = time.monotonic() + HEARD_SECONDS_MAX
    try:
        while True:
            try:
                await link.refresh()
                if await link.is_mirror(topic) is False:
                    return
            except LinkError:
                pass
            if time.monotonic() > deadline:
                raise BrokerUnreachable(
                    f"not every broker knows yet that {topic} is no longer a mirror",
                    hint="run the same command again when all of them answer",
                )
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await link.close()
