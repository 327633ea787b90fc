"""Who makes topics anew in a simulated run finds records of another one, and those that are not what was told."""

from typing import Any
from uuid import UUID

import pytest

from respool.model.ids import BrokerId
from respool.sim.checks.history import History
from respool.sim.clients.topic_recreator import Life, TopicRecreator
from respool.sim.run import simulate
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock, rng_of
from respool.sim.sim_plan import draw_sim_plan


@pytest.mark.parametrize(
    ("value", "rules"),
    [(b"life-2.1", []), (b"life-1.1", ["A5", "A2"]), (b"life-2.7", ["A2"])],
    ids=["as told", "of another topic", "another record"],
)
def test_what_is_not_as_it_was_told_is_found(value: bytes, rules: list[str]) -> None:
    loop, history = SimLoop(1), History()
    client: dict[str, Any] = {"loop": loop, "clock": NodeClock(loop), "rng": rng_of("maker", 1)}
    maker = TopicRecreator(
        "maker", topic={"name": "moods"}, history=history, brokers={BrokerId(1): ("h", 1)}, **client
    )
    life = Life(UUID(int=5), 2, acknowledged={3: b"life-2.1"})
    maker._check(life, 3, value)
    loop.close()
    assert [one.rule for one in history.violations] == rules
    if rules == ["A5", "A2"]:
        # Sent and never answered, it may have come late.
        maker._unsure.add(value)
        maker._check(life, 4, value)
        assert len(history.violations) == 2


def test_topics_are_made_anew_in_a_run() -> None:
    seed = next(one for one in range(100) if draw_sim_plan(one, broker_count=1).recreates_topics)
    report = simulate(seed, broker_count=1)
    assert report.violations == []
    assert report.counts["topics recreated"]
