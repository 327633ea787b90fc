"""Transactions that write one message to each partition of a topic, so that a torn one can be seen in what is left.

Every value is the transaction's number, the same in all partitions. Some are given up on purpose.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer

from support.message import Place, Received

TIMEOUT_S = 5.0
ATTEMPTS_MAX = 4
LIVES_AT_THE_END_MAX = 5


class TransactionWriter:
    """One producer in a thread of its own; when librdkafka says that it is done for, the next one takes its name."""

    def __init__(
        self, address: str, topic: str, *, partitions: int, seed: int, rest_s: float = 0.02
    ) -> None:
        self.topic = topic
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        # Neither end was confirmed: either may have come to be, but not half of one.
        self.unsure: set[int] = set()
        self.lives = 0
        # What went wrong with a whole life, for whoever wonders.
        self.troubles: list[str] = []
        self._address = address
        self._partitions = partitions
        self._rest_s = rest_s
        self._rng = random.Random(seed)
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def places(self) -> list[Place]:
        return [(self.topic, number) for number in range(self._partitions)]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the transaction under way, and end the producer in a way that leaves none open."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.lives += 1
            try:
                self._live()
            except KafkaException as error:
                self.troubles.append(str(error.args[0]))
        # Whoever takes the name ends what an earlier life left open.
        for _ in range(LIVES_AT_THE_END_MAX):
            with suppress(KafkaException):
                self._begin_life()
                return

    def _begin_life(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "transactional.id": f"writer of {self.topic}",
                "transaction.timeout.ms": 20_000,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "log_level": 0,
            }
        )
        _insist(lambda: producer.init_transactions(TIMEOUT_S))
        return producer

    def _live(self) -> None:
        producer = self._begin_life()
        while not self._stopping.wait(self._rest_s):
            self._one_transaction(producer)

    def _one_transaction(self, producer: Producer) -> None:
        number = self._number
        self._number += 1
        self.unsure.add(number)
        try:
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(self.topic, b"%d" % number, partition=partition)
            if self._rng.random() < 0.8:
                _insist(lambda: producer.commit_transaction(TIMEOUT_S))
                kept = self.committed
            else:
                _insist(lambda: producer.abort_transaction(TIMEOUT_S))
                kept = self.aborted
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _insist(lambda: producer.abort_transaction(TIMEOUT_S))
            kept = self.aborted
        self.unsure.discard(number)
        kept.add(number)

    def check(self, received: Mapping[Place, Sequence[Received]]) -> None:
        """`received` is all that a read_committed reader finds. Raises AssertionError."""
        found = {
            place: [int(one.value or b"-1") for one in messages]
            for place, messages in received.items()
        }
        everywhere = set.intersection(*map(set, found.values()))
        for place, numbers in found.items():
            assert numbers == sorted(set(numbers)), f"{place}: twice, or not in order"
            torn = set(numbers) - everywhere
            assert not torn, f"{place}: transactions {sorted(torn)[:5]} are not in all partitions"
        lost = self.committed - everywhere
        assert not lost, f"{len(lost)} committed transactions are lost, first {sorted(lost)[:5]}"
        undead = self.aborted & everywhere
        assert not undead, f"aborted transactions {sorted(undead)[:5]} can be read"
        unknown = everywhere - self.committed - self.unsure
        assert not unknown, f"transactions {sorted(unknown)[:5]} never were"


def _insist(act: Callable[[], None]) -> None:
    """What may be tried again is tried again, but not for ever: librdkafka sometimes waits for what does not come."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            act()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if not reason.retriable() or reason.fatal() or attempt == ATTEMPTS_MAX - 1:
                raise
        else:
            return
