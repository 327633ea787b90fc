"""The async consumer retries as the other one does."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import respool
from client.messages.retry.story import Boom, RetryStory, fail, header
from respool.client.messages.errors import BadArgument, RetryRefused

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-retry-async")]


def run(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(act(), 60))


def consumer(story: RetryStory, **given: Any) -> respool.AsyncConsumer:
    return respool.AsyncConsumer(story.topic, **story.arguments(**given))


def test_a_failed_message_is_retried_and_buried(story: RetryStory) -> None:
    story.send(b"0", b"1")
    seen: list[tuple[bytes | None, int]] = []

    async def act() -> None:
        async with consumer(story) as reader:
            while not reader.buried:
                message = await reader.poll(0.2)
                if message is None:
                    continue
                async with reader.handling(message):
                    seen.append((message.value, message.attempt))
                    if message.value == b"0":
                        fail(message)
            assert (reader.retried, reader.buried) == (2, 1)

    run(act)
    assert sorted(seen) == [(b"0", 1), (b"0", 2), (b"0", 3), (b"1", 1)]
    assert [one.value for one in story.letters()] == [b"0"]
    assert story.committed() == [2]


def test_tasks_that_handle_messages_together_report_their_failures(story: RetryStory) -> None:
    story.send(*(b"%d" % number for number in range(20)))

    async def act() -> None:
        async with consumer(story, commit="manual") as reader:
            messages: list[respool.Message] = []
            while len(messages) < 20:
                messages += await reader.poll_batch(20, 0.2)
            await asyncio.gather(*(reader.retry(one, Boom("in a task")) for one in messages))
            await reader.commit(messages[-1])
            assert reader.retried == 20

    run(act)
    assert story.committed() == [20]


def test_a_cancelled_task_sends_nothing(story: RetryStory) -> None:
    story.send(b"0")

    async def act() -> None:
        async with consumer(story) as reader:
            message = None
            while message is None:
                message = await reader.poll(0.2)
            with pytest.raises(asyncio.CancelledError):
                async with reader.handling(message):
                    raise asyncio.CancelledError

    run(act)
    assert story.read(story.retry_topic) == []


def test_a_refused_retry_is_raised(story: RetryStory) -> None:
    story.send(b"0")

    async def act() -> None:
        with story.broker.faults.answer_with_error("POLICY_VIOLATION", topic=story.retry_topic):
            async with consumer(story) as reader:
                async for message in reader:
                    async with reader.handling(message):
                        fail(message)

    with pytest.raises(RetryRefused):
        run(act)


def test_exactly_once_in_tasks(story: RetryStory) -> None:
    receipts = story.topics.new("receipts")
    story.send(b"0", b"1", b"2")

    async def act() -> None:
        async with (
            respool.AsyncProducer(
                story.broker.bootstrap, delivery="exactly-once", transactional_id=story.group
            ) as producer,
            consumer(story, delivery="exactly-once") as reader,
        ):
            async for transaction in reader.transactions(producer):
                async with transaction:
                    for message in transaction:
                        async with reader.handling(message):
                            await producer.send(receipts, message.value)
                            if message.value == b"1":
                                fail(message)
                if reader.buried:
                    return

    run(act)
    assert [one.value for one in story.read(receipts)] == [b"0", b"2"]
    (letter,) = story.letters()
    assert header(letter, "__dlq.errors.delivery.count") == b"3"


def test_a_consumer_that_does_not_retry_says_so(story: RetryStory) -> None:
    story.send(b"0")

    async def act() -> None:
        async with consumer(story, retry=None) as reader:
            message = None
            while message is None:
                message = await reader.poll(0.2)
            with pytest.raises(BadArgument, match=r"respool.Retry"):
                await reader.retry(message, Boom())
            assert (reader.retried, reader.buried) == (0, 0)

    run(act)
