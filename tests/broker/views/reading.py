"""A reader of a view as stock clients are: it parses batches, drops what lies before its position, and moves on."""

from dataclasses import dataclass, field

from respool.records.batch import RecordBatch, crc_of, read_header
from respool.records.markers import read_marker
from respool.records.record import Record, read_records
from respool.records.validate import walk_batches

LIMIT = 1 << 20


@dataclass
class Client:
    position: int
    records: list[Record] = field(default_factory=list)

    def take(self, data: bytes) -> None:
        """Parse the records of one reply; all its batches are whole and follow each other."""
        end = 0
        for position, header in walk_batches(data):
            batch = RecordBatch(header, data[position : position + header.size])
            end = position + header.size
            assert crc_of(batch.data) == header.crc
            assert header.next_offset > self.position, "a batch that the reader has already"
            if header.is_control:
                marker = read_marker(batch)
                assert marker is not None
                # Another producer's marker would end its transaction in the client.
                assert marker.producer_id == -1
                assert header.base_offset >= self.position
                assert end == len(data), "a marker ends a reply"
            else:
                found = read_records(batch, limit=LIMIT)
                assert len(found) == header.record_count > 0
                new = [one for one in found if one.offset >= self.position]
                self.records += new
            self.position = header.next_offset
        assert end == len(data)


def headers_in(data: bytes) -> list[tuple[int, int, bool]]:
    """First and last offset of each batch, and whether it is a marker."""
    return [
        (int(one.base_offset), int(one.last_offset), one.is_control)
        for _, one in walk_batches(data)
    ]


def first_header(data: bytes) -> RecordBatch:
    header = read_header(data)
    return RecordBatch(header, data[: header.size])
