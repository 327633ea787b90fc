"""What a log's tail says in memory is what its files say: asked of every log that stories and random walks use."""

from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.ids import Offset
from respool.records.batch import read_header

# A few batches of the tests', so that tails lose their beginning all the time.
TAIL_BYTES = 3_000


def check_tail(log: PartitionLog, *, bytes_max: int = 700) -> int:
    """Compare them at every batch; return how many of those are in the tail."""
    offset, count = log.log_start, 0
    while offset < log.log_end:
        data = log.read(ReadSpec(offset, max_offset=log.log_end, bytes_max=10**9, with_empty=True))
        first = read_header(data)
        tail = log.read_tail(ReadSpec(offset, max_offset=log.log_end, bytes_max=bytes_max))
        if tail is None:
            assert not count, f"the tail ends before {offset}, the log at {log.log_end}"
        else:
            count += 1
            content = b"".join(tail.buffers)
            assert len(content) == tail.size == len(tail)
            assert tail.size <= max(bytes_max, first.size)
            # A read of the files ends with a segment; what comes after it is compared in its turn.
            assert content[: len(data)] == data[: len(content)]
            assert tail.end == _end_of(content)
        offset = Offset(first.next_offset)
    return count


def _end_of(content: bytes) -> int:
    position, end = 0, -1
    while position < len(content):
        header = read_header(content, position)
        position += header.size
        end = header.next_offset
    assert position == len(content), "a part of a batch"
    return end
