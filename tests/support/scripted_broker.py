"""A broker that does what its test says: real sockets and frames, and a log that is a list of batches.

It answers ApiVersions, Metadata, ListOffsets, DescribeConfigs and Fetch as a good broker would. `script` holds what
happens to the next fetches instead, one after the other: a function that gets the request and returns the bytes to
send, or `HANG_UP`. Everything that was fetched is in `fetches`.
"""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

from respool.model.topic_config import DAY_MS
from respool.records.batch import Codec, read_header
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request, api_versions_fallback, decode_request, encode_reply
from respool.wire.hot_replies import FetchedPartition, FetchReplyTopic, encode_fetch_reply

TOPIC = "story"
HANG_UP = b""

Answer = Callable[[Request], bytes]


class ScriptedBroker:
    """Use it as a context."""

    def __init__(self, *, partitions: int = 1) -> None:
        self.partitions = partitions
        self.topic_id: UUID | None = uuid4()
        # By its number in the metadata; -1 for nobody.
        self.leader = 1
        self.leader_epoch = 0
        self.log_start = 0
        # Of every partition.
        self.batches: list[bytes] = []
        self.script: deque[Answer] = deque()
        # Offset and last epoch of each partition that was asked for.
        self.fetches: list[tuple[int, int, int]] = []
        self.versions = {
            key: (row.advertised_min, row.version_max) for key, row in API_TABLE.items()
        }
        self.settings: dict[str, str] = {}
        # What the next requests for metadata are answered with instead.
        self.metadata_script: deque[bytes] = deque()
        self.topic = TOPIC
        # How many there have been.
        self.connections = 0
        # Other brokers that metadata name.
        self.others: Sequence[ScriptedBroker] = ()
        self._lock = Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[Thread] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.hang_up()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        self._listener.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def all_brokers(self) -> "Sequence[ScriptedBroker]":
        """In the order of their numbers, which begin with 1."""
        return [self, *self.others]

    @property
    def end(self) -> int:
        return max((read_header(one).next_offset for one in self.batches), default=self.log_start)

    def append(
        self,
        *values: bytes,
        epoch: int | None = None,
        times: Sequence[int] = (),
        codec: Codec = Codec.NONE,
    ) -> None:
        """One batch."""
        records = [
            NewRecord(value=value, timestamp_ms=times[number] if times else 1_000)
            for number, value in enumerate(values)
        ]
        leader_epoch = self.leader_epoch if epoch is None else epoch
        batch = build_batch(records, base_offset=self.end, leader_epoch=leader_epoch, codec=codec)
        self.batches.append(batch)

    def hang_up(self) -> None:
        """End all connections."""
        with self._lock:
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    # -- what a fetch may be answered with -----------------------------------------------------------------------------

    def good(self, request: Request) -> bytes:
        """What lies in the log."""
        return self.fetched(request, self._read)

    def refuse(self, code: int, **fields: Any) -> Answer:
        """An error for each partition."""

        def answer(request: Request) -> bytes:
            return self.fetched(
                request,
                lambda one: FetchedPartition(one.partition, code, -1, -1, -1, b"", **fields),
            )

        return answer

    def fetched(self, request: Request, read: Callable[[Any], FetchedPartition]) -> bytes:
        topics = [
            FetchReplyTopic(
                getattr(topic, "topic", TOPIC),
                getattr(topic, "topic_id", None) or UUID(int=0),
                [read(one) for one in topic.partitions],
            )
            for topic in request.body.topics
        ]
        return b"".join(encode_fetch_reply(request.correlation_id, request.version, topics))

    def _read(self, one: Any) -> FetchedPartition:
        end = self.end
        if not self.log_start <= one.fetch_offset <= end:
            return FetchedPartition(one.partition, 1, -1, -1, -1, b"")
        wanted = [
            batch for batch in self.batches if read_header(batch).last_offset >= one.fetch_offset
        ]
        records = b"".join(wanted)[: max(one.partition_max_bytes, len(wanted[0]) if wanted else 0)]
        return FetchedPartition(one.partition, 0, end, end, self.log_start, records)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                with self._lock:
                    self._sockets.add(line)
                    self.connections += 1
                self._start(self._serve, line)

    def _serve(self, line: socket.socket) -> None:
        with line, suppress(OSError):
            while size := _receive(line, 4):
                frame = _receive(line, int.from_bytes(size, "big"))
                if frame is None:
                    break
                reply = self._answer(decode_request(memoryview(frame)))
                if reply == HANG_UP:
                    break
                line.sendall(reply)
        with self._lock:
            self._sockets.discard(line)

    def _answer(self, request: Request) -> bytes:
        match request.api.key:
            case Api.API_VERSIONS:
                return self._api_versions(request)
            case Api.METADATA:
                return self._metadata(request)
            case Api.LIST_OFFSETS:
                return self._list_offsets(request)
            case Api.DESCRIBE_CONFIGS:
                return self._describe_configs(request)
            case Api.FETCH:
                for topic in request.body.topics:
                    self.fetches += [
                        (one.partition, one.fetch_offset, one.last_fetched_epoch)
                        for one in topic.partitions
                    ]
                answer = self.script.popleft() if self.script else self.good
                return answer(request)
        raise AssertionError(request)

    def _api_versions(self, request: Request) -> bytes:
        if request.version > self.versions[Api.API_VERSIONS][1]:
            return api_versions_fallback(request.correlation_id)
        keys = [
            {"api_key": key, "min_version": oldest, "max_version": newest}
            for key, (oldest, newest) in self.versions.items()
        ]
        fields = {"error_code": 0, "api_keys": keys, "throttle_time": 0}
        return encode_reply(request, fields)

    def _metadata(self, request: Request) -> bytes:
        if self.metadata_script:
            return self.metadata_script.popleft()
        partitions = [
            {
                "error_code": 0,
                "partition_index": number,
                "leader_id": self.leader,
                "leader_epoch": self.leader_epoch,
                "replica_nodes": [1],
                "isr_nodes": [1],
                "offline_replicas": [],
            }
            for number in range(self.partitions)
        ]
        topics = [
            {
                "error_code": 0 if one.name == self.topic else 3,
                "name": one.name,
                "topic_id": self.topic_id,
                "is_internal": False,
                "partitions": partitions if one.name == self.topic else [],
            }
            for one in request.body.topics or ()
        ]
        brokers = [
            {"node_id": number, "host": "127.0.0.1", "port": one.port, "rack": None}
            for number, one in enumerate(self.all_brokers, start=1)
        ]
        fields = {
            "throttle_time": 0,
            "brokers": brokers,
            "cluster_id": "scripted",
            "controller_id": 1,
            "topics": topics,
        }
        return encode_reply(request, fields)

    def _list_offsets(self, request: Request) -> bytes:
        topics = [
            {
                "name": topic.name,
                "partitions": [self._offset_at(one) for one in topic.partitions],
            }
            for topic in request.body.topics
        ]
        return encode_reply(request, {"throttle_time": 0, "topics": topics})

    def _offset_at(self, asked: Any) -> dict[str, Any]:
        fields = {"partition_index": asked.partition_index, "error_code": 0, "leader_epoch": 0}
        if asked.timestamp < 0:
            offset = self.log_start if asked.timestamp == -2 else self.end
            return {**fields, "offset": offset, "timestamp": -1}
        # By batch: enough for stories.
        for header in map(read_header, self.batches):
            if header.max_timestamp >= asked.timestamp:
                return {**fields, "offset": header.base_offset, "timestamp": header.max_timestamp}
        return {**fields, "offset": -1, "timestamp": -1}

    def _describe_configs(self, request: Request) -> bytes:
        (asked,) = request.body.resources
        values = {
            "retention.ms": str(7 * DAY_MS),
            "retention.bytes": "-1",
            "cleanup.policy": "delete",
            **self.settings,
        }
        configs: list[dict[str, Any]] = [
            {
                "name": name,
                "value": value,
                "read_only": False,
                "config_source": 5,
                "is_sensitive": False,
                "synonyms": [],
                "documentation": None,
            }
            for name, value in values.items()
        ]
        result = {
            "error_code": 0,
            "error_message": None,
            "resource_type": asked.resource_type,
            "resource_name": asked.resource_name,
            "configs": configs,
        }
        return encode_reply(request, {"throttle_time": 0, "results": [result]})


def _receive(line: socket.socket, count: int) -> bytes | None:
    """None when the peer has gone."""
    have = b""
    while len(have) < count:
        more = line.recv(count - len(have))
        if not more:
            return None
        have += more
    return have
