"""Errors that end a reading, as `respool consume` says them."""

import pytest
from confluent_kafka import KafkaError

from respool.cli.connection_options import BrokerConnection
from respool.cli.kafka_library import OFFSET_GONE
from respool.cli.messages.consume_range import RangeProgress
from respool.cli.messages.topic_reader import TopicReader
from respool.model.operator_errors import OperatorError


class NoMessage:
    def partition(self) -> int:
        return 3


def test_messages_that_are_gone_need_not_be_out_of_retention(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator had deleted them with DeleteRecords, and retention was blamed."""
    monkeypatch.setattr("respool.cli.kafka_library.make_consumer", lambda *_, **__: None)
    monkeypatch.setattr(TopicReader, "_attach", lambda _: None)
    cursors = {3: RangeProgress(position=0, stop=None, until_ms=None)}
    reader = TopicReader(BrokerConnection(bootstrap="x:1"), "rides", cursors, follow=True)
    with pytest.raises(OperatorError, match="partition 3 of rides lost messages") as told:
        reader._on_message_error(KafkaError(OFFSET_GONE), NoMessage())
    assert "deleted, by retention or DeleteRecords" in told.value.hint
