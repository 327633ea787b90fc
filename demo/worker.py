"""One member of the fraud team's group, as a process of its own: `python -m demo.worker ADDRESS GROUP`.

It reads, commits after each batch, and says so: one line with the total after each commit. At the end of the stream it
ends. Killed at any moment it loses nothing: its successor continues at the last commit.
"""

import sys

from confluent_kafka import Consumer, KafkaError

from demo.rides import TOPIC

BATCH = 2_000


def main(address: str, group: str) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([TOPIC])
    ended: set[int] = set()
    count = 0
    while not consumer.assignment() or len(ended) < len(consumer.assignment()):
        read = 0
        for message in consumer.consume(BATCH, timeout=1.0):
            if message.error() is None:
                read += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
                ended.add(message.partition())
            else:
                print(message.error(), file=sys.stderr)
                return 1
        if read:
            consumer.commit(asynchronous=False)
            count += read
            print(count, flush=True)
    consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
