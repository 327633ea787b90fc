"""A query by hand on a broker of its own, and processes that die when they are told to."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from respool.spark.sink.executing import SinkBroker
from respool.spark.sink.protocol_steps import Effect
from respool.testing import Broker
from support.spark_sink_query import Died, Query, options_of


@pytest.fixture
def query() -> Iterator[Query]:
    with Broker(topics={"out": 2}) as broker:
        yield Query(broker, options_of(broker))


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """`die_at(3)`: whoever speaks to the broker dies after its third request; None: nobody does."""
    limit: list[int | None] = [None]
    told = [0]
    real = SinkBroker.answer

    def answer(self: SinkBroker, effect: Effect) -> Any:
        if limit[0] is not None and told[0] >= limit[0]:
            raise Died
        told[0] += 1
        return real(self, effect)

    def set_limit(steps: int | None) -> None:
        limit[0], told[0] = steps, 0

    monkeypatch.setattr(SinkBroker, "answer", answer)
    return set_limit
