"""Requests as whole frames, built once and then patched in place: a load client must cost less than what it measures.

```
 0      4         6         8               12
 | size | api key | version | correlation id | client id | body ...
```
The places to patch inside a body are found by building it with a number that occurs nowhere else.
"""

import socket
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from struct import Struct
from typing import Any, NoReturn, Self

from crc32c import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from respool.records.batch import CRC_COVERS_FROM
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

CLIENT_ID = "respool-bench"
PRODUCE_VERSION = 11
FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9
METADATA_VERSION = 12
CREATE_TOPICS_VERSION = 7

# For a topic just made to be known.
KNOWN_SECONDS_MAX = 10.0
KNOWN_POLL_SECONDS = 0.001

INT = Struct(">i")
LONG = Struct(">q")
CORRELATION_AT = 8
_INDEX_MARK = 0x5EA1_1DEA
_LONG_MARK = 0x5EA1_F00D_5EA1_F00D

# Inside a record batch.
_CRC = Struct(">I")
_CRC_AT = 17
_TIMES = Struct(">qq")
_TIMES_AT = 27
# The records of a batch with times are spread over this many milliseconds.
BATCH_SPAN_MS = 10


class RequestFailed(Exception):
    """The broker answered with an error code, or not as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A whole record batch of messages that are all alike."""

    data: bytes
    messages: int

    @classmethod
    def of_size(cls, batch_bytes: int, *, message_bytes: int, time_ms: int) -> Self:
        """As many messages as fit; their values are text-like, not zeros."""
        alphabet = b"the quick brown fox jumps over the lazy dog, again and again; "
        value = (alphabet * (message_bytes // len(alphabet) + 1))[:message_bytes]

        def build(count: int) -> bytes:
            return build_batch(
                [
                    NewRecord(value=value, timestamp_ms=time_ms + at * BATCH_SPAN_MS // count)
                    for at in range(count)
                ]
            )

        # A record's own bytes: its value and seven to ten around it.
        count = max(1, (batch_bytes - 61) // (message_bytes + 7))
        data = build(count)
        while len(data) > batch_bytes and count > 1:
            count -= max(1, (len(data) - batch_bytes) // (message_bytes + 10))
            data = build(count)
        return cls(data=data, messages=count)


class ProduceFrame:
    """One batch for one partition; patched to be the next request."""

    def __init__(self, topic: str, batch: Batch, *, acks: int) -> None:
        self.data = frame(
            Api.PRODUCE,
            PRODUCE_VERSION,
            transactional_id=None,
            acks=acks,
            timeout=timedelta(seconds=30),
            topic_data=[
                {
                    "name": topic,
                    "partition_data": [{"index": _INDEX_MARK, "records": batch.data}],
                }
            ],
        )
        self.batch_at = self.data.index(batch.data)
        self.index_at = self.data.index(INT.pack(_INDEX_MARK), CORRELATION_AT + 4)
        self.batch_bytes = len(batch.data)
        INT.pack_into(self.data, self.index_at, 0)
        # Where the reply for one partition of one topic has its error code.
        # | size 4 | correlation id 4 | tags 1 | topics 1 | name 1 + n | partitions 1 | index 4 | error 2 |
        self.reply_error_at = 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def stamp_time(data: bytearray, batch_at: int, batch_bytes: int, time_ms: int) -> None:
    """Give the batch inside `data` another time; the checksum covers it, so it is recomputed."""
    _TIMES.pack_into(data, batch_at + _TIMES_AT, time_ms, time_ms + BATCH_SPAN_MS - 1)
    with memoryview(data) as view:
        crc = crc32c(view[batch_at + CRC_COVERS_FROM : batch_at + batch_bytes])
    _CRC.pack_into(data, batch_at + _CRC_AT, crc)


class FetchFrame:
    """Asks one partition for bytes from an offset on, outside of any fetch session."""

    def __init__(
        self,
        topic_id: uuid.UUID,
        *,
        bytes_max: int,
        partition: int = 0,
        wait_ms: int = 500,
        bytes_min: int = 1,
    ) -> None:
        self.data = frame(
            Api.FETCH,
            FETCH_VERSION,
            max_wait=timedelta(milliseconds=wait_ms),
            min_bytes=bytes_min,
            max_bytes=bytes_max,
            topics=[
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {
                            "partition": partition,
                            "fetch_offset": _LONG_MARK,
                            "partition_max_bytes": bytes_max,
                        }
                    ],
                }
            ],
            forgotten_topics_data=(),
        )
        self._offset_at = self.data.index(LONG.pack(_LONG_MARK))

    def at(self, offset: int, correlation_id: int) -> bytearray:
        LONG.pack_into(self.data, self._offset_at, offset)
        INT.pack_into(self.data, CORRELATION_AT, correlation_id)
        return self.data


class ListOffsetsFrame:
    """Asks which offset belongs to a time."""

    def __init__(self, topic: str) -> None:
        self.data = frame(
            Api.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            replica_id=-1,
            isolation_level=0,
            topics=[
                {
                    "name": topic,
                    "partitions": [{"partition_index": 0, "timestamp": _LONG_MARK}],
                }
            ],
        )
        self._time_at = self.data.index(LONG.pack(_LONG_MARK))

    def at(self, time_ms: int, correlation_id: int) -> bytearray:
        LONG.pack_into(self.data, self._time_at, time_ms)
        INT.pack_into(self.data, CORRELATION_AT, correlation_id)
        return self.data


class Client:
    """One connection for setting things up and for asking one thing at a time."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 60.0) -> None:
        self.socket = connect(host, port, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def create_topic(
        self, name: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> uuid.UUID:
        """Create it and return its id."""
        configs = [{"name": key, "value": value} for key, value in (settings or {}).items()]
        reply = self.call(
            Api.CREATE_TOPICS,
            CREATE_TOPICS_VERSION,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": -1,
                    "assignments": (),
                    "configs": configs,
                }
            ],
        )
        (topic,) = reply.topics
        if topic.error_code:
            raise RequestFailed(f"create {name}: {topic.error_code!r} {topic.error_message}")
        return self.topic_id(name, wait_s=KNOWN_SECONDS_MAX)

    def topic_id(self, name: str, *, wait_s: float = 0.0) -> uuid.UUID:
        """Of a topic that is there, or will be soon: Apache Kafka says that it made one before it knows it itself."""
        deadline = time.monotonic() + wait_s
        while True:
            topic = self._metadata(name)
            if not topic.error_code:
                assert isinstance(topic.topic_id, uuid.UUID)
                return topic.topic_id
            if time.monotonic() >= deadline:
                raise RequestFailed(f"metadata of {name}: {topic.error_code!r}")
            time.sleep(KNOWN_POLL_SECONDS)

    def _metadata(self, name: str) -> Any:
        reply = self.call(
            Api.METADATA,
            METADATA_VERSION,
            topics=[{"topic_id": None, "name": name}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        (topic,) = reply.topics
        return topic

    def end_offset(self, topic: str, partition: int = 0) -> int:
        reply = self.call(
            Api.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            replica_id=-1,
            isolation_level=0,
            topics=[
                {"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}
            ],
        )
        answer = reply.topics[0].partitions[0]
        if answer.error_code:
            raise RequestFailed(f"end of {topic}: {answer.error_code!r}")
        return int(answer.offset)

    def call(self, api: Api, version: int, **fields: Any) -> Any:
        self.socket.sendall(frame(api, version, **fields))
        reply_class = load_response_schema(api, version)
        # All versions used here are flexible: an empty section of tagged fields follows the id.
        body = self.read_frame()[5:]
        entity, _ = entity_reader(reply_class)(body, 0)
        return entity

    def read_frame(self) -> bytes:
        """The next frame without its size."""
        (size,) = INT.unpack(read_exactly(self.socket, 4))
        return read_exactly(self.socket, size)


def fail_load(reason: str) -> NoReturn:
    """End this client; the parent reads the reason where it waits for a result."""
    print(reason, flush=True)
    sys.exit(1)


def connect(host: str, port: int, *, timeout_s: float) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    with memoryview(data) as view:
        read_into(connection, view)
    return bytes(data)


def read_into(connection: socket.socket, view: memoryview) -> None:
    """Fill the view.

    Raises:
        RequestFailed: the broker closed the connection before that.
    """
    filled = 0
    while filled < len(view):
        received = connection.recv_into(view[filled:])
        if not received:
            raise RequestFailed("the broker closed the connection")
        filled += received


def frame(api: Api, version: int, **fields: Any) -> bytearray:
    """A whole request frame with correlation id 0, from fields named as kio names them; nested ones as mappings."""
    request = _entity(load_request_schema(api, version), fields)
    header_class = request.__header_schema__
    header = header_class(
        request_api_key=api, request_api_version=version, correlation_id=0, client_id=CLIENT_ID
    )
    buffer = BytesIO()
    buffer.write(bytes(4))
    entity_writer(header_class)(buffer, header)
    entity_writer(type(request))(buffer, request)
    data = bytearray(buffer.getvalue())
    INT.pack_into(data, 0, len(data) - 4)
    return data


def _entity(entity_class: Any, fields: Mapping[str, Any]) -> Any:
    from respool.wire.schema import schema_of

    structs = {one.name: one.struct for one in schema_of(entity_class) if one.struct is not None}
    values = {
        name: tuple(_entity(structs[name], item) for item in value) if name in structs else value
        for name, value in fields.items()
    }
    return entity_class(**values)
