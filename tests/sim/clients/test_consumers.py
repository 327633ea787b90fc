"""A simulated consumer asks followers as real ones do."""

from random import Random
from types import SimpleNamespace
from typing import Any

from respool.model.ids import BrokerId, TopicPartition
from respool.sim.checks.history import History
from respool.sim.clients.consumers import SimConsumer
from respool.sim.clients.sim_client import NOT_LEADER, OK
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock
from respool.wire.api_table import Api

NAME = TopicPartition("rides", 0)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
FENCED_LEADER_EPOCH = 74


class Told(SimConsumer):
    """Hears what a test says, and keeps whom it asked for what."""

    leader: tuple[int, int]
    answers: list[dict[str, int]]
    asked: list[tuple[BrokerId, int]]

    async def ask(self, broker: BrokerId, api: Api, version: int, **fields: Any) -> Any:
        del version
        if api is Api.METADATA:
            leader, epoch = self.leader
            partition = SimpleNamespace(partition_index=0, leader_id=leader, leader_epoch=epoch)
            return SimpleNamespace(topics=[SimpleNamespace(name="rides", partitions=[partition])])
        assert api is Api.FETCH
        wish = fields["topics"][0]["partitions"][0]
        self.asked.append((broker, wish["current_leader_epoch"]))
        answer = {
            "error_code": OK,
            "preferred_read_replica": -1,
            "high_watermark": 0,
            "last_stable_offset": 0,
            "log_start_offset": 0,
            "records": b"",
            "aborted_transactions": (),
            **self.answers.pop(0),
        }
        partitions = [SimpleNamespace(**answer)]
        return SimpleNamespace(error_code=OK, responses=[SimpleNamespace(partitions=partitions)])


def test_a_follower_is_asked_in_the_leaders_epoch_and_one_that_knows_a_newer_sends_to_the_new_leader() -> (
    None
):
    """Seed 1000046, without it:

    1. A leader sends a consumer to a follower.   2. Another broker leads; the first has not heard of it.
    3. The follower says what is committed in the new epoch.   4. The old leader, asked where the log ends, says less.
    """
    loop = SimLoop()
    consumer = Told(
        "reader",
        names=[NAME],
        is_committed=False,
        rack="b",
        loop=loop,
        clock=NodeClock(loop),
        rng=Random(1),
        history=History(),
        brokers={ONE: ("127.0.0.1", 1), TWO: ("127.0.0.2", 1), THREE: ("127.0.0.3", 1)},
    )
    consumer.asked = []

    async def story() -> None:
        consumer.leader = (ONE, 6)
        consumer.answers = [
            {"preferred_read_replica": TWO},
            {"error_code": FENCED_LEADER_EPOCH},
            {},
        ]
        assert (await consumer.poll(NAME, 0)).code == OK
        consumer.leader = (THREE, 7)
        assert (await consumer.poll(NAME, 0)).code == NOT_LEADER
        assert (await consumer.poll(NAME, 0)).code == OK

    loop.run(story)
    assert consumer.asked == [(ONE, 6), (TWO, 6), (THREE, 7)]
