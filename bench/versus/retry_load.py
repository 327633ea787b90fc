"""Messages whose handling fails, as an application with `respool.Consumer(retry=...)` has them.

As a command: `fill ADDRESS TOPIC COUNT`, or `again|again-exactly-once|bury|until-handled ADDRESS TOPIC COUNT GROUP`:

    again                every message fails, and is sent to the retry topic; until that is acknowledged
    again-exactly-once   the same, each batch in a transaction with its offsets
    bury                 no attempt helps: every message becomes a dead letter
    until-handled        every message fails once, and its second attempt, a second later, is handled
"""

import gc
import sys
from collections.abc import Callable
from contextlib import ExitStack

from bench.load_client import announce
from bench.requests import fail_load
from respool import Consumer, Producer, Retry

MESSAGE_BYTES = 100
# Of these, what the first failure makes is made: the producer of retries, its connection, its topic's metadata.
WARM_UP = 500
SILENCE_SECONDS_MAX = 60.0
DELAY = "1s"
# Longer than a run.
LONG_DELAY = "1h"


class HandlerFailed(Exception):
    """The service that the handler needs does not answer."""


def main() -> None:
    command, address, topic, count, *rest = sys.argv[1:]
    gc.disable()
    if command == "fill":
        _fill(address, topic, int(count))
        return
    (group,) = rest
    loads: dict[str, Callable[[str, str, int, str], None]] = {
        "again": _again,
        "again-exactly-once": _again_exactly_once,
        "bury": _bury,
        "until-handled": _until_handled,
    }
    loads[command](address, topic, int(count), group)


def _fill(address: str, topic: str, count: int) -> None:
    value = bytes(MESSAGE_BYTES)
    with Producer(address, pace="throughput") as producer:
        finish = announce()
        for number in range(count):
            producer.send(topic, value, key=b"%d" % number)
        producer.flush(SILENCE_SECONDS_MAX)
    finish(count, count, count * MESSAGE_BYTES)


def _again(address: str, topic: str, count: int, group: str) -> None:
    retry = Retry(delays=(LONG_DELAY,))
    with Consumer(topic, group=group, bootstrap=address, retry=retry) as consumer:
        _fail_all(consumer, count, done=lambda: consumer.retried)


def _bury(address: str, topic: str, count: int, group: str) -> None:
    retry = Retry(delays=(LONG_DELAY,), give_up=HandlerFailed)
    with Consumer(topic, group=group, bootstrap=address, retry=retry) as consumer:
        _fail_all(consumer, count, done=lambda: consumer.buried)


def _fail_all(consumer: Consumer, count: int, *, done: Callable[[], int]) -> None:
    failed = 0
    finish = None
    while failed < count:
        message = consumer.poll(SILENCE_SECONDS_MAX)
        if message is None:
            fail_load(f"retries: {failed} of {count} messages came")
        with consumer.handling(message):
            failed += 1
            raise HandlerFailed("the exchange rate is not known")
        if failed == WARM_UP:
            finish = announce()
    assert finish is not None
    # Waits until all retries are acknowledged.
    consumer.commit()
    if done() != count:
        fail_load(f"retries: {done()} of {count} were acknowledged")
    measured = count - WARM_UP
    finish(measured, measured, measured * MESSAGE_BYTES)


def _again_exactly_once(address: str, topic: str, count: int, group: str) -> None:
    retry = Retry(delays=(LONG_DELAY,))
    failed = 0
    finish = None
    with ExitStack() as stack:
        producer = stack.enter_context(
            Producer(address, delivery="exactly-once", transactional_id=group)
        )
        consumer = stack.enter_context(
            Consumer(topic, group=group, bootstrap=address, delivery="exactly-once", retry=retry)
        )
        for transaction in consumer.transactions(producer, idle_s=SILENCE_SECONDS_MAX):
            with transaction:
                for message in transaction:
                    with consumer.handling(message):
                        raise HandlerFailed("the exchange rate is not known")
            failed += len(transaction) if transaction.is_committed else 0
            if finish is None:
                warm_up, finish = failed, announce()
            if failed >= count:
                break
        if finish is None or consumer.retried != count:
            fail_load(f"retries: {consumer.retried} of {count} were committed")
        measured = count - warm_up
        finish(measured, measured, measured * MESSAGE_BYTES)


def _until_handled(address: str, topic: str, count: int, group: str) -> None:
    handled = 0
    finish = None
    retry = Retry(delays=(DELAY,))
    with Consumer(topic, group=group, bootstrap=address, retry=retry) as consumer:
        while handled < count:
            message = consumer.poll(SILENCE_SECONDS_MAX)
            if message is None:
                fail_load(f"retries: {handled} of {count} messages were handled")
            if finish is None:
                finish = announce()
            with consumer.handling(message):
                if message.attempt == 1:
                    raise HandlerFailed("the exchange rate is not known")
                handled += 1
    assert finish is not None
    finish(count, count, count * MESSAGE_BYTES)


if __name__ == "__main__":
    main()
