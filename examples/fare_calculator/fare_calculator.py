"""Rides in, fares out: a service between two topics, with confluent-kafka and transactions.

A ride is `{"km": 4.2, "minutes": 11}` under the ride's id as key. Its fare goes to another topic under the same key, in
one transaction with the offset that says the ride is done: each ride has one fare, whatever crashes in between.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

RIDES, FARES, REJECTED = "rides", "fares", "rejected-rides"
BASE_CENTS, CENTS_PER_KM, CENTS_PER_MINUTE = 250, 120, 30


def fare_of(ride: bytes) -> bytes:
    """What a ride costs, in cents.

    Raises:
        ValueError: that is no ride.
    """
    try:
        fields = json.loads(ride)
        cents = BASE_CENTS + CENTS_PER_KM * fields["km"] + CENTS_PER_MINUTE * fields["minutes"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a ride: {error!r}") from error
    return str(round(cents)).encode()


class FareCalculator:
    """One of them at a time: a second one with the same name fences the first."""

    def __init__(self, bootstrap: str, *, name: str = "fare-calculator") -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "log_level": 0,
            # Else, when all brokers were away for a moment, send_offsets_to_transaction may wait forever
            # (librdkafka issue 5511).
            "metadata.recovery.strategy": "none",
        }
        self._producer = Producer(
            {
                **common,
                "transactional.id": name,
                "transaction.timeout.ms": 60_000,
                # As the Java client chooses it, so that a ride's fares have one partition with any client.
                "partitioner": "murmur2_random",
            }
        )
        self._producer.init_transactions(30)
        self._consumer = Consumer(
            {
                **common,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([RIDES])

    def step(self, timeout: float = 1.0) -> int:
        """Charge the rides that are there, and return how many that were; 0 when none came in time.

        Raises:
            KafkaException: another one has taken over, or a fatal error.
        """
        rides = [one for one in self._consumer.consume(100, timeout) if _is_message(one)]
        if not rides:
            return 0
        self._producer.begin_transaction()
        try:
            for ride in rides:
                self._charge(ride)
            self._producer.send_offsets_to_transaction(
                [
                    TopicPartition(one.topic, one.partition, one.offset)
                    for one in self._consumer.position(self._consumer.assignment())
                    if one.offset >= 0
                ],
                self._consumer.consumer_group_metadata(),
                30,
            )
            self._producer.commit_transaction(30)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(30)
            self._go_back(rides)
            return 0
        return len(rides)

    def close(self) -> None:
        self._consumer.close()

    def _charge(self, ride: Message) -> None:
        try:
            self._producer.produce(FARES, key=ride.key(), value=fare_of(ride.value()))
        except ValueError as error:
            # It would be refused again tomorrow. Somebody will look at it.
            self._producer.produce(
                REJECTED, key=ride.key(), value=ride.value(), headers={"why": str(error)}
            )

    def _go_back(self, rides: list[Message]) -> None:
        """What was read and not charged is read again."""
        first: dict[int, int] = {}
        for ride in rides:
            first.setdefault(ride.partition(), ride.offset())
        for partition, offset in first.items():
            self._consumer.seek(TopicPartition(RIDES, partition, offset))


def _is_message(one: Message) -> bool:
    error = one.error()
    if error is None:
        return True
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART or error.retriable():
        return False
    raise KafkaException(error)


def main() -> None:
    calculator = FareCalculator(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
    try:
        while True:
            calculator.step()
    finally:
        calculator.close()


if __name__ == "__main__":
    main()
