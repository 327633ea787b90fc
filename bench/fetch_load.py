"""Reading a log as fast as a broker sends it, one fetch at a time on each connection; the records are thrown away.

Only the head of a reply is looked at. All batches of the log must be alike, so the number of bytes says how far a reply
went, and no batch needs to be parsed.

```
reply, one partition of one topic
 0      4                9          13      15        19     20         36           37
 | size | correlation id | throttle | error | session | 1+1  | topic id | 1+1        | ...
        | and tags       |          |       |         | topics          | partitions |
 37      41      43               51            59          67        68        72
 | index | error | high watermark | last stable | log start | aborted | replica | records' length (varint) | ...
```
"""

import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from bench.requests import INT, FetchFrame, RequestFailed, connect, fail_load, read_into

# Enough for everything before the records and not more than the shortest reply with a partition.
HEAD_BYTES = 76
_HEAD_MIN = 21
_RECORDS_LENGTH_AT = 72
_DISCARD_BYTES = 1024 * 1024
_ERROR = Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSpec:
    host: str
    port: int
    topic_id: str
    bytes_max: int
    connections: int = 1
    # Each connection reads from here to there again and again until the time is over.
    offset_first: int
    offset_end: int
    batch_bytes: int
    batch_messages: int
    seconds: float
    # Stop at the end of the log instead of beginning again.
    is_once: bool = False
    warm_up_seconds: float = 0.0


def run_fetch(spec: FetchSpec, announce: Callable[[], Callable[[int, int, int], None]]) -> None:
    readers = [_Reader(spec) for _ in range(spec.connections)]
    if spec.warm_up_seconds:
        readers[0].run(spec.warm_up_seconds)
        readers[0].forget()
    threads = [threading.Thread(target=one.run, args=(spec.seconds,)) for one in readers]
    finish = announce()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    problems = [one.problem for one in readers if one.problem]
    if problems:
        fail_load(f"fetch: {problems[0]}")
    batches = sum(one.batches for one in readers)
    finish(
        sum(one.requests for one in readers),
        batches * spec.batch_messages,
        batches * spec.batch_bytes,
    )


class _Reader:
    def __init__(self, spec: FetchSpec) -> None:
        self._spec = spec
        self._fetch = Fetcher(
            connect(spec.host, spec.port, timeout_s=60.0),
            FetchFrame(uuid.UUID(spec.topic_id), bytes_max=spec.bytes_max),
        )
        self.problem = ""
        self.forget()

    def forget(self) -> None:
        self.requests = 0
        self.batches = 0

    def run(self, seconds: float) -> None:
        try:
            self._run(seconds)
        except (RequestFailed, OSError) as error:
            self.problem = str(error) or type(error).__name__

    def _run(self, seconds: float) -> None:
        spec = self._spec
        offset = spec.offset_first
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            # The last batch may be incomplete, as with Kafka; it is fetched again.
            batches = self._fetch(offset) // spec.batch_bytes
            self.requests += 1
            self.batches += batches
            offset += batches * spec.batch_messages
            if not batches:
                raise RequestFailed(f"no batch at offset {offset} of {spec.offset_end}")
            if offset >= spec.offset_end:
                if spec.is_once:
                    return
                offset = spec.offset_first


class Fetcher:
    """Sends one fetch and reads its reply; knows when its first bytes came."""

    def __init__(self, connection: socket.socket, frame: FetchFrame) -> None:
        self._socket = connection
        self._frame = frame
        self._head = bytearray(HEAD_BYTES)
        self._head_view = memoryview(self._head)
        self._discard = memoryview(bytearray(_DISCARD_BYTES))
        self._correlation_id = 0
        self.first_byte_at = 0.0

    def __call__(self, offset: int) -> int:
        """Fetch from the offset and return the number of record bytes."""
        self.send(offset)
        return self.receive()

    def send(self, offset: int) -> None:
        self._correlation_id += 1
        self._socket.sendall(self._frame.at(offset, self._correlation_id))

    def receive(self) -> int:
        head = self._head
        read_into(self._socket, self._head_view[:_HEAD_MIN])
        self.first_byte_at = time.perf_counter()
        rest = INT.unpack_from(head)[0] + 4 - _HEAD_MIN
        self._check(13)
        if rest < HEAD_BYTES - _HEAD_MIN:
            raise RequestFailed("a fetch reply without the partition")
        read_into(self._socket, self._head_view[_HEAD_MIN:])
        self._check(41)
        self._skip(rest - (HEAD_BYTES - _HEAD_MIN))
        return self._records_length()

    def _check(self, at: int) -> None:
        (error,) = _ERROR.unpack_from(self._head, at)
        if error:
            raise RequestFailed(f"error code {error}")

    def _skip(self, count: int) -> None:
        discard = self._discard
        while count:
            received = self._socket.recv_into(discard, min(count, len(discard)))
            if not received:
                raise RequestFailed("the broker closed the connection")
            count -= received

    def _records_length(self) -> int:
        # Four bytes of the varint are in the head, and no reply reaches 2^28 bytes.
        value, shift = 0, 0
        for byte in self._head[_RECORDS_LENGTH_AT:]:
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        # The length plus one; 0 is null.
        return max(0, value - 1)
