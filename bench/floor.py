"""What this machine charges for the work no broker can leave out: receiving, checking, writing, reading, sending.

Measured in this process, in CPU seconds as the broker's are. The last rows put it together: a broker whose own code
cost nothing would reach them. Other programs on the machine lower these figures as they lower the broker's.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from crc32c import crc32c

from bench.broker_process import BENCH_FOLDER
from bench.report import Column, Report, Table, gigabytes, millions
from bench.scale import MB, Scale

CHUNK = 1 * MB
FILE_BYTES = 512 * MB
PEER_SECONDS_MAX = 20.0
# A 100-byte message in a batch.
RECORD_BYTES = 110

COLUMNS = (
    Column("what", "what"),
    Column("bytes_per_cpu_s", "GB per CPU-s", gigabytes),
    Column("messages_per_cpu_s", "100-byte messages per CPU-s", millions),
)


def run(scale: Scale, report: Report) -> None:
    report.progress("floor: what the machine itself takes")
    seconds = min(1.0, scale.seconds)
    BENCH_FOLDER.mkdir(exist_ok=True)
    costs = {
        "copy in memory": _copy(seconds),
        "crc32c": _crc(seconds),
        "write a growing file, pages not used for long": _write(),
        "write a growing file, pages just freed": _write(),
        "read from the page cache": _read(),
        "receive from loopback": _receive(seconds),
        "send to loopback": _send(seconds),
    }
    table = Table("floor", "The machine's floor, pieces of 1 MB", COLUMNS)
    for what, rate in costs.items():
        table.rows.append(_row(what, rate))
    produce = ("receive from loopback", "crc32c", "write a growing file, pages just freed")
    fetch = ("read from the page cache", "send to loopback")
    for title, parts in (("produce", produce), ("fetch", fetch)):
        rate = 1 / sum(1 / costs[part] for part in parts)
        table.rows.append(_row(f"{title}: {', '.join(part.split(',')[0] for part in parts)}", rate))
    table.notes.append(
        "Where the two writes differ much, the machine gives free memory back to its host. The produce figures are "
        "taken with pages just freed."
    )
    report.add(table)


def _row(what: str, rate: float) -> dict[str, Any]:
    return {"what": what, "bytes_per_cpu_s": rate, "messages_per_cpu_s": rate / RECORD_BYTES}


def _repeated(once: Callable[[], int], seconds: float) -> float:
    """Bytes per CPU-second of calling it again and again."""
    once()
    moved = 0
    deadline = time.perf_counter() + seconds
    began = time.process_time()
    while time.perf_counter() < deadline:
        moved += once()
    return moved / (time.process_time() - began)


def _copy(seconds: float) -> float:
    source, target = os.urandom(CHUNK), bytearray(CHUNK)

    def once() -> int:
        target[:] = source
        return CHUNK

    return _repeated(once, seconds)


def _crc(seconds: float) -> float:
    source = os.urandom(CHUNK)

    def once() -> int:
        crc32c(source)
        return CHUNK

    return _repeated(once, seconds)


@contextmanager
def _file() -> Iterator[int]:
    path = BENCH_FOLDER / "floor-probe"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        path.unlink()


def _write() -> float:
    chunk = os.urandom(CHUNK)
    with _file() as descriptor:
        began = time.process_time()
        for _ in range(FILE_BYTES // CHUNK):
            os.write(descriptor, chunk)
        return FILE_BYTES / (time.process_time() - began)


def _read() -> float:
    chunk = bytearray(CHUNK)
    with _file() as descriptor:
        for _ in range(FILE_BYTES // CHUNK):
            os.write(descriptor, chunk)
        began = time.process_time()
        for number in range(FILE_BYTES // CHUNK):
            os.preadv(descriptor, [chunk], number * CHUNK)
        return FILE_BYTES / (time.process_time() - began)


def _receive(seconds: float) -> float:
    buffer = bytearray(CHUNK)
    with _peer(_pour) as connection:
        return _repeated(lambda: connection.recv_into(buffer), seconds)


def _send(seconds: float) -> float:
    chunk = os.urandom(CHUNK)
    with _peer(_drain) as connection:
        return _repeated(lambda: connection.send(chunk), seconds)


@contextmanager
def _peer(work: Callable[[int], None]) -> Iterator[socket.socket]:
    """Another process at the other end of a loopback connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = get_context("spawn").Process(
            target=work, args=(server.getsockname()[1],), daemon=True
        )
        process.start()
        server.settimeout(PEER_SECONDS_MAX)
        connection, _ = server.accept()
    try:
        with connection:
            yield connection
    finally:
        process.kill()
        process.join()


def _pour(port: int) -> None:
    chunk = bytes(CHUNK)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            connection.sendall(chunk)


def _drain(port: int) -> None:
    buffer = bytearray(CHUNK)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while connection.recv_into(buffer):
            pass
