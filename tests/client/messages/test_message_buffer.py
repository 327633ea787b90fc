"""Messages between librdkafka and the caller: in order, dropped with their partition, stuck until a rewind."""

import pytest

from respool.client.messages.errors import OutsideRetention, ReceiveFailed
from respool.client.messages.group_commits import HandledUpTo
from respool.client.messages.message import Message, UndecodedMessage
from respool.client.messages.message_buffer import MessageBuffer


def message(offset: int, *, partition: int = 0, kind: type[Message] = Message) -> Message:
    return kind(
        topic="rides", partition=partition, offset=offset, timestamp=None, key=None, value=b""
    )


def offsets(found: list[Message]) -> list[int]:
    return [one.offset for one in found]


def test_what_is_taken_is_in_hand() -> None:
    progress = HandledUpTo()
    buffer = MessageBuffer(progress)
    buffer.add(message(offset) for offset in range(3))
    assert offsets(buffer.take(2)) == [0, 1]
    progress.on_done()
    assert progress.to_commit() == {("rides", 0): 2}
    assert buffer.firsts() == {("rides", 0): 2}


def test_a_message_that_cannot_be_read_is_raised_after_those_before_it() -> None:
    progress = HandledUpTo()
    buffer = MessageBuffer(progress)
    buffer.add([message(0), message(1, kind=UndecodedMessage), message(2), message(7, partition=1)])
    assert offsets(buffer.take(10)) == [0, 7]
    for _ in range(2):
        with pytest.raises(ReceiveFailed, match="offset 1"):
            buffer.take(10)
    progress.on_done()
    assert progress.to_commit() == {("rides", 0): 1, ("rides", 1): 8}


def test_a_partition_is_stuck_until_it_is_released() -> None:
    buffer = MessageBuffer(HandledUpTo())
    buffer.add([message(0), message(0, partition=1)])
    buffer.on_stuck(
        ("rides", 0), OutsideRetention("gone", topic="rides", partition=0, offset=0, first_offset=5)
    )
    assert [one.partition for one in buffer.take(10)] == [1]
    with pytest.raises(OutsideRetention):
        buffer.raise_stuck()
    buffer.release([("rides", 0)])
    buffer.raise_stuck()
    assert not buffer
