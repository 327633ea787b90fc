"""What one partition's part of a reply holds for a reader that is not shown every record."""

from dataclasses import dataclass, field

# Batches smaller than this are joined: copying one costs less than sending another buffer.
BATCH_APART_BYTES_MIN = 32 * 1024


@dataclass(slots=True)
class FilteredRecords:
    """The batches of a reply in several buffers."""

    buffers: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    message_count: int = 0
    # Nothing up to the reader's end is shown: the reply has only a marker, and may as well wait for records.
    is_idle: bool = False

    def __len__(self) -> int:
        return self.size

    def add(self, data: bytes | memoryview, *, messages: int) -> None:
        self.buffers.append(data)
        self.size += len(data)
        self.message_count += messages

    def join_if_small(self) -> None:
        if self.size < len(self.buffers) * BATCH_APART_BYTES_MIN:
            self.buffers = [b"".join(self.buffers)]
