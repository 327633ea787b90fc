"""A partition as other threads see it: a fetch that reads from the disk may meet its deletion at any moment."""

import asyncio
from typing import Any

import pytest

from broker.counting_machine import World
from respool.broker.partitions.partition import Partition
from respool.model.errors import NotLeader


class Vanishing(Partition):
    """Is deleted just after its log was looked at so often."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name == "_log" and value is not None:
            left = self.__dict__["looks_left"] = self.__dict__["looks_left"] - 1
            if left < 0:
                return None
        return value


def vanishing(after_looks: int) -> Partition:
    partition = World().partition
    partition.__dict__["looks_left"] = after_looks
    partition.__class__ = Vanishing
    return partition


def test_a_partition_that_is_deleted_while_another_thread_looks_is_there_or_gone() -> None:
    async def story() -> None:
        assert vanishing(1).log.log_end == 0
        assert vanishing(1).log_start == 0
        assert vanishing(1).last_stable_offset == 0
        with pytest.raises(NotLeader):
            _ = vanishing(0).log
        assert vanishing(0).log_start == -1

    asyncio.run(story())
