"""Tables written and read at the same time, by Respool's columnar client.

As a command: `write ADDRESS TOPIC COUNT` or `follow ADDRESS TOPIC COUNT`.
"""

import sys
from typing import Any

from bench.load_client import announce
from bench.requests import fail_load

MESSAGE_BYTES = 100
TABLE_ROWS = 500_000
WARM_UP_ROWS = 20_000
SILENCE_SECONDS_MAX = 30.0


def main() -> None:
    command, address, topic, count = sys.argv[1:]
    if command == "write":
        _write(address, topic, int(count))
    else:
        _follow(address, topic, int(count))


def _write(address: str, topic: str, count: int) -> None:
    import respool

    table = _table()
    with respool.ArrowProducer(address) as producer:
        # Kernels are loaded, connections made.
        producer.write(table.slice(0, WARM_UP_ROWS), topic)
        producer.flush()
        finish = announce()
        left = count
        while left:
            left -= producer.write(table.slice(0, left), topic)
        rows = producer.flush().rows_in
        finish(rows, rows, rows * MESSAGE_BYTES)


def _follow(address: str, topic: str, count: int) -> None:
    """Until that many rows came, beside those of the producer's warm-up."""
    import respool

    with respool.stream_batches(topic, bootstrap=address) as stream:
        rows = 0
        while rows < WARM_UP_ROWS:
            rows += _next_rows(stream)
        finish = announce()
        while rows < WARM_UP_ROWS + count:
            rows += _next_rows(stream)
        taken = rows - WARM_UP_ROWS
        finish(taken, taken, taken * MESSAGE_BYTES)


def _next_rows(stream: Any) -> int:
    batch = stream.poll(SILENCE_SECONDS_MAX)
    if batch is None:
        fail_load("columnar consumer: nothing came for too long")
    return int(batch.num_rows)


def _table() -> Any:
    """Values that look like text in part."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(6)
    letters = rng.integers(97, 123, size=(TABLE_ROWS, MESSAGE_BYTES), dtype=np.uint8)
    letters[:, : MESSAGE_BYTES // 2] = letters[0, : MESSAGE_BYTES // 2]
    ends = np.arange(TABLE_ROWS + 1, dtype=np.int32) * MESSAGE_BYTES
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    return pa.table({"value": pa.Array.from_buffers(pa.binary(), TABLE_ROWS, buffers)})


if __name__ == "__main__":
    main()
