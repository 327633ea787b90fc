"""Charges finished rides, each exactly once, as a process of its own: `python -m demo.biller ADDRESS STAY_AFTER`.

It reads rides and writes charges; these, and how far it has read, are one transaction each time. It says what it has
done: `charged N` after a commit. Once it has charged STAY_AFTER rides it stays in the middle of the next transaction,
and says `written N`: that is not committed. It is the moment to kill it.
"""

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from demo.rides import STEPS, TOPIC

CHARGES = "charges"
NAME = "billing-1"
BATCH = 4_000


def main(address: str, stay_after: str) -> int:
    # Whatever an earlier biller of this name has left open ends here.
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": NAME,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "billing",
            # It takes the place of the one before, and need not wait until that is missed.
            "group.instance.id": NAME,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([TOPIC])
    ended: set[int] = set()
    charged = 0
    while not consumer.assignment() or len(ended) < len(consumer.assignment()):
        events = []
        for message in consumer.consume(BATCH, timeout=1.0):
            if message.error() is None:
                events.append(json.loads(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
                ended.add(message.partition())
            else:
                print(message.error(), file=sys.stderr)
                return 1
        if not events:
            continue
        producer.begin_transaction()
        written = _charge(producer, events)
        if written and charged >= int(stay_after):
            producer.flush()
            print(f"written {written}", flush=True)
            time.sleep(60)
            return 1
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        charged += written
        print(f"charged {charged}", flush=True)
    consumer.close()
    return 0


def _charge(producer: Producer, events: list[dict[str, Any]]) -> int:
    finished = [event for event in events if event["step"] == STEPS[-1]]
    for event in finished:
        producer.produce(CHARGES, key=event["ride_id"], value=str(event["fare_cents"]))
    return len(finished)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
