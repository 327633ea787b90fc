"""A consumer on confluent-kafka that retries: python plain_consumer.py BROKER TOPIC GROUP"""

import sys

from confluent_kafka import Consumer
from failed_messages import FailedMessages


def handle(value: bytes, *, attempt: int) -> None:
    """Values that say on which attempt they succeed: `3:paid`."""
    succeeds_at, _, text = value.decode().partition(":")
    if attempt < int(succeeds_at):
        raise TimeoutError(f"the database does not answer to attempt {attempt}")
    sys.stdout.write(f"{attempt} {text}\n")
    sys.stdout.flush()


def main(bootstrap: str, topic: str, group: str) -> None:
    failed = FailedMessages(bootstrap, group, delays=("1s", "1s"), give_up=(ValueError,))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic, failed.retry_topic])
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        try:
            handle(message.value() or b"", attempt=failed.attempt_of(message))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            failed.send_on(message, error)
        consumer.commit(message, asynchronous=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
