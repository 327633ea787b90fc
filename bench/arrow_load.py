"""The Arrow client's side of `bench/arrow.py`: one table written again and again, or a topic read in batches.

What is measured is the client as users have it, in a process of its own; the table is made before. Its memory is what
it needs beyond that table and its libraries: the largest while it works, without what it had when it began.
"""

import json
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.requests import fail_load
from bench.scale import MESSAGE_BYTES

TABLE_ROWS = 500_000
WATCH_EVERY_S = 0.01
KEY_BYTES = 8


def main() -> None:
    command, address, topic, count, codec = sys.argv[1:]
    if command.startswith("first"):
        # A library of ours imports it where it is installed, as for tests; users do not have it.
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    if command == "read":
        _read(address, topic, int(count))
    elif command == "first-write":
        _first_write(address, topic)
    elif command == "first-read":
        _first_read(address, topic)
    else:
        _write(address, topic, int(count), codec, has_keys=command == "write-keyed")


def _write(address: str, topic: str, count: int, codec: str, *, has_keys: bool) -> None:
    import respool

    table = _table(has_keys=has_keys)
    with respool.ArrowProducer(address, compression=codec) as producer:  # type: ignore[arg-type]
        # Kernels are loaded, connections made.
        producer.write(table.slice(0, 20_000), topic)
        producer.flush()
        with _Measurement() as measurement:
            left = count
            while left:
                part = table.slice(0, left)
                left -= producer.write(part, topic)
            result = producer.flush()
            measurement.finish(result.rows_in)


def _read(address: str, topic: str, count: int) -> None:
    import respool

    # Kernels are loaded.
    respool.read_table(topic, bootstrap=address, since=0, until=1)
    rows = 0
    with _Measurement() as measurement:
        with respool.stream_batches(topic, bootstrap=address, follow=False) as stream:
            for batch in stream:
                rows += batch.num_rows
        if rows < count:
            fail_load(f"{rows} of {count} rows came")
        measurement.finish(rows)


def _first_write(address: str, topic: str) -> None:
    began = time.perf_counter()
    import numpy as np
    import pyarrow as pa

    import respool

    # Not from a list: pyarrow would look for pandas, whose import is not ours.
    letters = np.full((1, MESSAGE_BYTES), 97, dtype=np.uint8)
    table = pa.table({"value": _column(letters, MESSAGE_BYTES)})
    respool.write_table(table, topic, bootstrap=address)
    _tell_first(began)


def _first_read(address: str, topic: str) -> None:
    began = time.perf_counter()
    import respool

    respool.read_table(topic, bootstrap=address, since=0, until=1)
    _tell_first(began)


def _tell_first(began: float) -> None:
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu_s": time.process_time()}))


def _table(*, has_keys: bool) -> Any:
    """Values that look like text in part, so that codecs have something to do and something left."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(6)
    letters = rng.integers(97, 123, size=(TABLE_ROWS, MESSAGE_BYTES), dtype=np.uint8)
    letters[:, : MESSAGE_BYTES // 2] = letters[0, : MESSAGE_BYTES // 2]
    columns = {"value": _column(letters, MESSAGE_BYTES)}
    if has_keys:
        columns["key"] = _column(letters[:, -KEY_BYTES:].copy(), KEY_BYTES)
    return pa.table(columns)


def _column(letters: Any, width: int) -> Any:
    import numpy as np
    import pyarrow as pa

    ends = np.arange(len(letters) + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.binary(), len(letters), buffers)


class _Measurement:
    """Says "ready", waits for "go", watches its own memory, and says what was done."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._peak = 0

    def __enter__(self) -> Self:
        print("ready", flush=True)
        if sys.stdin.readline().strip() != "go":
            sys.exit("no start")
        self._memory = self._peak = _resident_bytes()
        self._watcher.start()
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._watcher.join()

    def finish(self, messages: int) -> None:
        seconds, cpu_s = time.perf_counter() - self._began, time.process_time() - self._cpu_began
        result = {
            "seconds": seconds,
            "cpu_s": cpu_s,
            "requests": 0,
            "messages": messages,
            "bytes": messages * MESSAGE_BYTES,
            "memory_bytes": self._peak - self._memory,
        }
        print(json.dumps(result), flush=True)

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_EVERY_S):
            self._peak = max(self._peak, _resident_bytes())


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS in /proc/self/status")


if __name__ == "__main__":
    main()
