"""A broker of a few lines that answers as a test tells it to: error codes, lost answers, closed connections.

What it is not told about it does as a broker does: batches are appended if their producer's sequences fit.
"""

import socket
from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self

from respool.records.batch import BatchHeader, RecordBatch, crc_of, read_header
from respool.records.record import Record, read_records
from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request, decode_request, encode_reply
from respool.wire.hot_replies import ProducedPartition, encode_produce_reply

TOPIC = "rides"
# What else may be done with a produce request: append and close the connection; close it at once; never answer.
LOSE_ANSWER = "append, then close"
LOSE_REQUEST = "close"
HANG = "no answer"
DAMAGED, GAP, OLD_EPOCH = 2, 45, 47
BROKER = 1
FIRST_PRODUCER_ID = 1_000
KEPT_BATCHES = 5


@dataclass
class FakePartition:
    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    # As brokers do of a producer that they know nothing of.
    takes_any_first_sequence: bool = False
    # Producer -> epoch, next sequence, and what it wrote last: base sequence -> base offset.
    producers: dict[int, tuple[int, int, dict[int, int]]] = field(default_factory=dict)

    def append(self, data: bytes) -> tuple[int, int]:
        """An error code and the base offset."""
        header = read_header(data)
        if crc_of(data) != header.crc:
            return DAMAGED, -1
        if header.producer_id >= 0:
            epoch, expected, known = self.producers.get(header.producer_id, (-1, 0, {}))
            if header.producer_epoch < epoch:
                return OLD_EPOCH, -1
            if header.producer_epoch > epoch:
                expected, known = 0, {}
            if header.base_sequence in known:
                return 0, known[header.base_sequence]
            is_any_taken = epoch == -1 and self.takes_any_first_sequence
            if header.base_sequence != expected and not is_any_taken:
                return GAP, -1
            kept = dict(list((known | {header.base_sequence: self.end}).items())[-KEPT_BATCHES:])
            following = (header.last_sequence + 1) & (2**31 - 1)
            self.producers[header.producer_id] = header.producer_epoch, following, kept
        self.batches.append(data)
        self.end += header.record_count
        return 0, self.end - header.record_count

    @property
    def records(self) -> list[Record]:
        return [
            record
            for data in self.batches
            for record in read_records(RecordBatch(read_header(data), data), limit=1 << 30)
        ]


class FakeBroker:
    """Use it as a context."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        transaction_level: int = 2,
        versions: dict[Api, tuple[int, int]] | None = None,
        takes_any_first_sequence: bool = False,
    ) -> None:
        self.partitions = [
            FakePartition(takes_any_first_sequence=takes_any_first_sequence)
            for _ in range(partitions)
        ]
        self._transaction_level = transaction_level
        self._versions = versions or {}
        self._produce_script: dict[int, deque[int | str]] = defaultdict(deque)
        self._scripts: dict[Api, deque[int]] = defaultdict(deque)
        self._lock = Lock()
        self._connections: list[socket.socket] = []
        self._threads: list[Thread] = []
        self._producer_ids = FIRST_PRODUCER_ID
        self.asked: list[Request] = []
        self.produced: list[BatchHeader] = []
        self.produce_versions: set[int] = set()
        self.transaction_state = "Ongoing"
        self.transaction_producer = (FIRST_PRODUCER_ID, 0)
        self.max_message_bytes = 1_048_588

    def __enter__(self) -> Self:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._accepting = Thread(target=self._accept)
        self._accepting.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join()
        self.cut()
        for thread in self._threads:
            thread.join()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def script(self, *answers: int | str, partition: int = 0) -> None:
        """What the next batches for a partition are answered with; 0 is what a broker does."""
        self._produce_script[partition].extend(answers)

    def refuse(self, api: Api, *codes: int) -> None:
        """What the next requests of this kind are answered with; 0 is success."""
        self._scripts[api].extend(codes)

    def asked_for(self, api: Api) -> list[Any]:
        return [request.body for request in self.asked if request.api.key == api]

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            connections, self._connections = self._connections, []
        for one in connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    # Inside.

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                self._connections.append(line)
            thread = Thread(target=self._serve, args=(line,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, line: socket.socket) -> None:
        with line, suppress(OSError), line.makefile("rb") as stream:
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head, "big"))
                request = decode_request(memoryview(frame))
                with self._lock:
                    self.asked.append(request)
                    reply = self._answer(request)
                if reply is None:
                    return
                line.sendall(reply)

    def _answer(self, request: Request) -> bytes | None:
        if request.api.key == Api.PRODUCE:
            return self._produce(request)
        script = self._scripts[Api(request.api.key)]
        code = script.popleft() if script else 0
        fields = getattr(self, f"_{Api(request.api.key).name.lower()}")(request, code)
        return encode_reply(request, fields)

    def _produce(self, request: Request) -> bytes | None:
        self.produce_versions.add(request.version)
        results: list[ProducedPartition] = []
        is_closing = False
        for topic in request.body.topic_data:
            for data in topic.partition_data:
                script = self._produce_script[data.index]
                act = script.popleft() if script else 0
                self.produced.append(read_header(data.records))
                if act == LOSE_REQUEST:
                    return None
                if act == HANG:
                    return b""
                code, offset = (
                    self.partitions[data.index].append(bytes(data.records))
                    if act in (0, LOSE_ANSWER)
                    else (int(act), -1)
                )
                is_closing |= act == LOSE_ANSWER
                results.append(
                    ProducedPartition(data.index, code, offset, error_message=f"fake {code}")
                )
        if is_closing:
            return None
        if request.body.acks == 0:
            return b""
        return encode_produce_reply(request.correlation_id, request.version, [(TOPIC, results)])

    def _api_versions(self, request: Request, code: int) -> dict[str, Any]:
        level = self._transaction_level
        feature = {
            "name": "transaction.version",
            "max_version_level": level,
            "min_version_level": level,
        }
        ranges = {
            api.key: self._versions.get(api.key, (api.advertised_min, api.version_max))
            for api in API_TABLE.values()
        }
        return {
            "error_code": code,
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high}
                for key, (low, high) in ranges.items()
            ],
            "throttle_time": 0,
            "supported_features": [],
            "finalized_features_epoch": 0,
            "finalized_features": [feature] if level else [],
        }

    def _metadata(self, request: Request, code: int) -> dict[str, Any]:
        host, port = self._server.getsockname()
        (asked,) = request.body.topics
        known = asked.name == TOPIC
        return {
            "throttle_time": 0,
            "brokers": [{"node_id": BROKER, "host": host, "port": port, "rack": None}],
            "cluster_id": "fake",
            "controller_id": BROKER,
            "topics": [
                {
                    "error_code": code or (0 if known else 3),
                    "name": asked.name,
                    "topic_id": None,
                    "is_internal": False,
                    "partitions": [
                        {
                            "error_code": 0,
                            "partition_index": index,
                            "leader_id": BROKER,
                            "leader_epoch": 0,
                            "replica_nodes": [BROKER],
                            "isr_nodes": [BROKER],
                            "offline_replicas": [],
                        }
                        for index in range(len(self.partitions) if known else 0)
                    ],
                    "topic_authorized_operations": -(2**31),
                }
            ],
            "cluster_authorized_operations": -(2**31),
        }

    def _describe_configs(self, request: Request, code: int) -> dict[str, Any]:
        (asked,) = request.body.resources
        entry = {
            "name": "max.message.bytes",
            "value": str(self.max_message_bytes),
            "read_only": False,
            "config_source": 5,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": 3,
            "documentation": None,
        }
        result = {
            "error_code": code,
            "error_message": None,
            "resource_type": asked.resource_type,
            "resource_name": asked.resource_name,
            "configs": [] if code else [entry],
        }
        return {"throttle_time": 0, "results": [result]}

    def _init_producer_id(self, request: Request, code: int) -> dict[str, Any]:
        if request.body.transactional_id is None:
            producer = (self._producer_ids, 0)
            self._producer_ids += 1
        else:
            producer_id, epoch = self.transaction_producer
            producer = self.transaction_producer = (producer_id, epoch + 1)
        return {
            "throttle_time": 0,
            "error_code": code,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
        }

    def _find_coordinator(self, request: Request, code: int) -> dict[str, Any]:
        host, port = self._server.getsockname()
        return {
            "throttle_time": 0,
            "node_id": BROKER,
            "host": host,
            "port": port,
            "error_code": code,
            "error_message": None,
        }

    def _end_txn(self, request: Request, code: int) -> dict[str, Any]:
        if not code and request.version >= 5:
            producer_id, epoch = self.transaction_producer
            self.transaction_producer = (producer_id, epoch + 1)
        if not code:
            self.transaction_state = "CompleteCommit" if request.body.committed else "CompleteAbort"
        producer_id, epoch = self.transaction_producer
        fields = {"throttle_time": 0, "error_code": code}
        if request.version >= 5:
            fields |= {"producer_id": producer_id, "producer_epoch": epoch}
        return fields

    def _describe_transactions(self, request: Request, code: int) -> dict[str, Any]:
        producer_id, epoch = self.transaction_producer
        return {
            "throttle_time": 0,
            "transaction_states": [
                {
                    "error_code": code,
                    "transactional_id": name,
                    "transaction_state": self.transaction_state,
                    "transaction_timeout": 60_000,
                    "transaction_start_time": 0,
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "topics": [],
                }
                for name in request.body.transactional_ids
            ],
        }

    def _add_partitions_to_txn(self, request: Request, code: int) -> dict[str, Any]:
        return {
            "throttle_time": 0,
            "results_by_topic_v3_and_below": [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": one, "partition_error_code": code}
                        for one in topic.partitions
                    ],
                }
                for topic in request.body.v3_and_below_topics
            ],
        }

    def _add_offsets_to_txn(self, request: Request, code: int) -> dict[str, Any]:
        return {"throttle_time": 0, "error_code": code}

    def _txn_offset_commit(self, request: Request, code: int) -> dict[str, Any]:
        return {
            "throttle_time": 0,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": one.partition_index, "error_code": code}
                        for one in topic.partitions
                    ],
                }
                for topic in request.body.topics
            ],
        }


def values_of(records: Iterable[Record]) -> list[int]:
    return [int(bytes(record.value or b"-1")) for record in records]
