"""Many small transactions at once: each producer writes one batch a transaction, all of them go step by step.

Frames are built once a producer and patched: sequence and epoch stand in the batch, and its checksum covers them.
"""

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from struct import Struct
from typing import Any

from crc32c import crc32c

from bench.load_client import announce
from bench.requests import Client, RequestFailed, frame
from bench.scale import MESSAGE_BYTES
from respool.records.batch import CRC_COVERS_FROM
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

INIT_VERSION = 4
ADD_VERSION = 3
FIND_COORDINATOR_VERSION = 4
TRANSACTION_KEY = 1
WARM_UP_SECONDS = 0.5
_ACKS_ALL = -1

# Inside a record batch.
_CRC, _CRC_AT = Struct(">I"), 17
_EPOCH_AND_SEQUENCE, _EPOCH_AT = Struct(">hi"), 51
_EPOCH = Struct(">h")
_ERROR = Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSpec:
    host: str
    port: int
    topic: str
    partitions: int
    producers: int
    messages: int
    seconds: float
    # 2: partitions are added by writing to them, and each end bumps the epoch (KIP-890).
    version: int

    def text(self) -> str:
        return json.dumps(asdict(self))


class TransactionalProducer:
    """One connection under one transactional id."""

    def __init__(self, client: Client, spec: TransactionSpec, number: int) -> None:
        self.client = client
        name, partition = f"bench-{number}", number % spec.partitions
        reply = client.call(
            Api.INIT_PRODUCER_ID,
            INIT_VERSION,
            transactional_id=name,
            transaction_timeout=timedelta(seconds=60),
            producer_id=-1,
            producer_epoch=-1,
        )
        if reply.error_code:
            raise RequestFailed(f"InitProducerId answered with {reply.error_code!r}")
        who: dict[str, Any] = {
            "transactional_id": name,
            "producer_id": reply.producer_id,
            "producer_epoch": reply.producer_epoch,
        }
        self._epoch = reply.producer_epoch
        self._sequence = 0
        self._messages = spec.messages
        self._bumps = spec.version >= 2
        self.add = frame(
            Api.ADD_PARTITIONS_TO_TXN,
            ADD_VERSION,
            **{f"v3_and_below_{key}": value for key, value in who.items()},
            v3_and_below_topics=[{"name": spec.topic, "partitions": (partition,)}],
        )
        batch = build_batch(
            [NewRecord(value=b"x" * MESSAGE_BYTES, timestamp_ms=int(time.time() * 1000))]
            * spec.messages,
            producer_id=reply.producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            is_transactional=True,
        )
        self.batch_bytes = len(batch)
        self.produce = frame(
            Api.PRODUCE,
            12 if self._bumps else 11,
            transactional_id=name,
            acks=_ACKS_ALL,
            timeout=timedelta(seconds=30),
            topic_data=[
                {"name": spec.topic, "partition_data": [{"index": partition, "records": batch}]}
            ],
        )
        self._batch_at = self.produce.index(batch)
        self.end = frame(Api.END_TXN, 5 if self._bumps else 3, **who, committed=True)
        # The epoch stands before the last two bytes: committed, and no tagged fields.
        self._end_epoch_at = len(self.end) - 4
        self._produce_error_at = 4 + 1 + 1 + 1 + len(spec.topic) + 1 + 4

    def next_batch(self) -> bytearray:
        at, data = self._batch_at, self.produce
        _EPOCH_AND_SEQUENCE.pack_into(data, at + _EPOCH_AT, self._epoch, self._sequence)
        with memoryview(data) as view:
            crc = crc32c(view[at + CRC_COVERS_FROM : at + self.batch_bytes])
        _CRC.pack_into(data, at + _CRC_AT, crc)
        self._sequence += self._messages
        return data

    def on_added(self, reply: bytes) -> None:
        # Correlation id, tags, throttle time, one topic of one partition, whose error comes before two ends of tags.
        self._check("AddPartitionsToTxn", reply, len(reply) - 5)

    def on_produced(self, reply: bytes) -> None:
        self._check("Produce", reply, self._produce_error_at)

    def on_ended(self, reply: bytes) -> None:
        self._check("EndTxn", reply, 4 + 1 + 4)
        if self._bumps:
            (self._epoch,) = _EPOCH.unpack_from(reply, 4 + 1 + 4 + 2 + 8)
            self._sequence = 0
            _EPOCH.pack_into(self.end, self._end_epoch_at, self._epoch)

    @staticmethod
    def _check(what: str, reply: bytes, at: int) -> None:
        (error,) = _ERROR.unpack_from(reply, at)
        if error:
            raise RequestFailed(f"{what} answered with {error}")


def main() -> None:
    spec = TransactionSpec(**json.loads(sys.argv[1]))
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(spec.host, spec.port)) for _ in range(spec.producers)]
        _find_coordinator(clients[0])
        producers = [
            TransactionalProducer(client, spec, number) for number, client in enumerate(clients)
        ]
        _run(producers, spec, WARM_UP_SECONDS)
        finish = announce()
        rounds = _run(producers, spec, spec.seconds)
        count = rounds * spec.producers
        # A request counted is a transaction.
        finish(count, count * spec.messages, count * producers[0].batch_bytes)


def _find_coordinator(client: Client) -> None:
    client.call(
        Api.FIND_COORDINATOR,
        FIND_COORDINATOR_VERSION,
        key_type=TRANSACTION_KEY,
        coordinator_keys=("bench-0",),
    )


def _run(producers: list[TransactionalProducer], spec: TransactionSpec, seconds: float) -> int:
    """One transaction of each after the other; return how many of each."""
    until, rounds = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        if spec.version < 2:
            for one in producers:
                one.client.socket.sendall(one.add)
            for one in producers:
                one.on_added(one.client.read_frame())
        for one in producers:
            one.client.socket.sendall(one.next_batch())
        for one in producers:
            one.on_produced(one.client.read_frame())
        for one in producers:
            one.client.socket.sendall(one.end)
        for one in producers:
            one.on_ended(one.client.read_frame())
        rounds += 1
    return rounds


if __name__ == "__main__":
    main()
