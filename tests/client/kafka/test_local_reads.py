"""What a broker of this machine lends is read from its file; where that fails it is sent, and nothing is missing."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from respool.client.arrow.errors import PartitionUnavailable
from respool.client.arrow.reading.read import read_table
from respool.client.kafka.connection import ReplyBuffer
from respool.client.kafka.local_reads import AGAIN_AFTER_S, LocalReads
from respool.local_reads.local_file_read import this_host
from respool.model.file_range import FILE_RANGE_VALID_MS, FileRange
from respool.wire.codec import Request
from respool.wire.hot_replies import FetchedPartition
from respool.wire.protocol_errors import RequestMalformed
from support.fetched_part import fetched_part
from support.scripted_broker import TOPIC, ScriptedBroker

ROWS = [b"%d" % number for number in range(8)]
PORTS = count(1)
LOG, OTHER = f"{0:020d}.log", f"{1:020d}.log"


def local_read(path: Path, content: bytes) -> FileRange:
    path.write_bytes(content)
    found = path.stat()
    return FileRange(str(path), found.st_dev, found.st_ino, 0, len(content), content[:21])


def local_reads(*, is_on_this_host: bool = True, bytes_max: int = 1_000) -> LocalReads:
    address = ("127.0.0.1", next(PORTS)) if is_on_this_host else None
    return LocalReads(address, into=ReplyBuffer(), bytes_max=bytes_max)


def test_a_broker_elsewhere_is_not_told_where_we_are() -> None:
    assert local_reads(is_on_this_host=False).host_to_name() == ""
    assert local_reads().host_to_name() == this_host()


def test_what_was_lent_and_what_was_sent_stay_with_their_partitions(tmp_path: Path) -> None:
    first, second = local_read(tmp_path / LOG, b"first"), local_read(tmp_path / OTHER, b"second")
    one = local_reads()
    one.host_to_name()
    parts = [
        fetched_part(0, file_range=first),
        fetched_part(1, records=b"sent"),
        fetched_part(2, file_range=second),
        fetched_part(3),
    ]
    found = one.filled(parts)
    assert [bytes(each.records) for each in found] == [b"first", b"sent", b"second", b""]
    assert [each.partition for each in found] == [0, 1, 2, 3]
    assert all(each.file_range is None for each in found)


def test_after_a_failure_all_is_sent_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("respool.client.kafka.local_reads.time.monotonic", lambda: now)
    gone = local_read(tmp_path / LOG, b"first")
    (tmp_path / LOG).unlink()
    one = local_reads()
    one.host_to_name()
    (found,) = one.filled([fetched_part(0, file_range=gone)])
    assert (found.file_range, bytes(found.records)) == (gone, b"")
    # Neither now nor by the next read.
    again = LocalReads(one._address, into=ReplyBuffer(), bytes_max=1_000)
    assert one.host_to_name() == again.host_to_name() == ""
    assert local_reads().host_to_name() == this_host()
    now += AGAIN_AFTER_S
    assert one.host_to_name() == this_host()


def test_who_lends_unasked_or_too_much_is_no_broker(tmp_path: Path) -> None:
    file_range = local_read(tmp_path / LOG, b"x" * 1_001)
    one = local_reads()
    one.host_to_name()
    with pytest.raises(RequestMalformed, match="1001 bytes in file ranges, limit 1000"):
        one.filled([fetched_part(0, file_range=file_range)])
    far = local_reads(is_on_this_host=False)
    far.host_to_name()
    with pytest.raises(RequestMalformed, match="no local read was requested"):
        far.filled([fetched_part(0, file_range=file_range)])


def test_what_lay_unread_for_long_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the messages paused, with a reply in the socket: the file may be another that looks the same."""
    now = 1_000.0
    monkeypatch.setattr("respool.client.kafka.local_reads.time.monotonic", lambda: now)
    file_range = local_read(tmp_path / LOG, b"first")
    one = local_reads()
    one.host_to_name()
    now += FILE_RANGE_VALID_MS / 1000 + 1
    (found,) = one.filled([fetched_part(0, file_range=file_range)])
    assert (found.file_range, bytes(found.records)) == (file_range, b"")
    # That is nobody's fault.
    assert one.host_to_name() == this_host()
    (found,) = one.filled([fetched_part(0, file_range=file_range)])
    assert (found.file_range, bytes(found.records)) == (None, b"first")


# -- a whole read ------------------------------------------------------------------------------------------------------


class Lender(ScriptedBroker):
    """It lends whenever it may; its file holds all batches."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.hosts: list[str] = []
        self.local_read = 0
        self.always_lends = False
        for first, second in zip(ROWS[::2], ROWS[1::2], strict=True):
            self.append(first, second)
        path.write_bytes(b"".join(self.batches))

    def good(self, request: Request) -> bytes:
        host = getattr(request.body, "reader_host", "")
        self.hosts.append(host)
        reads_locally = self.always_lends or host == this_host()
        return self.fetched(request, self._lend if reads_locally else self._read)

    def _lend(self, one: Any) -> FetchedPartition:
        sent = self._read(one)
        if sent.error_code or not sent.records:
            return sent
        assert isinstance(sent.records, bytes)
        self.local_read += 1
        position = b"".join(self.batches).index(sent.records)
        found = self.path.stat()
        size = min(len(sent.records), len(self.batches[0]) + 10)
        head = sent.records[:21]
        file_range = FileRange(str(self.path), found.st_dev, found.st_ino, position, size, head)
        return sent._replace(records=b"", file_range=file_range)


@pytest.fixture
def lender(tmp_path: Path) -> Iterator[Lender]:
    with Lender(tmp_path / LOG) as running:
        yield running


def values(broker: ScriptedBroker, **wish: Any) -> list[bytes]:
    found = read_table(TOPIC, bootstrap=broker.address, retry_ms=5_000, **wish)
    return [each.as_py() for each in found.column("value")]


def test_a_read_takes_what_is_lent_batch_after_batch(lender: Lender) -> None:
    assert values(lender) == ROWS
    # Each place ends a few bytes into the next batch, which comes whole with the next.
    assert lender.local_read == len(lender.batches)


def test_a_read_goes_on_with_what_is_sent_when_the_file_is_gone(
    lender: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend = lender._lend

    def lend_a_file_that_goes(one: Any) -> FetchedPartition:
        answer = lend(one)
        if lender.local_read == 2 and answer.file_range is not None:
            return answer._replace(
                file_range=answer.file_range._replace(inode=answer.file_range.inode + 1)
            )
        return answer

    monkeypatch.setattr(lender, "_lend", lend_a_file_that_goes)
    assert values(lender) == ROWS
    assert lender.hosts[:2] == [this_host()] * 2
    assert set(lender.hosts[2:]) == {""}


def test_old_brokers_are_not_asked_for_it(lender: Lender) -> None:
    lender.topic_id = None
    assert values(lender) == ROWS
    assert set(lender.hosts) == {""}


def test_a_broker_that_lends_unasked_is_given_up(lender: Lender) -> None:
    lender.topic_id = None
    lender.always_lends = True
    with pytest.raises(
        PartitionUnavailable,
        match="broker 1: the reply has file ranges, but no local read was requested",
    ):
        read_table(TOPIC, bootstrap=lender.address, retry_ms=300)
