"""Bytes from a socket -> whole request frames. No I/O: feed it, then take frames.

```
 0      4                4 + size
 | size | size bytes ... |      big-endian, signed; size does not count itself
```
One buffer per connection is filled in place and frames are views of it: nothing is copied except an incomplete frame
that is moved to the front now and then. Memory grows with received bytes, never with an announced size, and only with
the consent of its owner (`growth_wanted`, then `grow`).
"""

from struct import Struct

from respool.wire.protocol_errors import FrameMalformed, FrameTooLarge

# API key, version and correlation id: the shortest request header.
REQUEST_BYTES_MIN = 8

_SIZE_BYTES = 4
_read_size = Struct(">i").unpack_from


class FrameReader:
    """The receiving half of one connection.

    ```
    0          _start              _end              capacity
    | consumed  | received, unread  | free            |
    ```
    Invariant: 0 <= _start <= _end <= capacity. A returned frame lies before `_start`: it counts as consumed, and is
    overwritten after the next `get_buffer`.
    """

    __slots__ = (
        "_buffer_bytes",
        "_capacity",
        "_end",
        "_frame_bytes_max",
        "_frame_bytes_min",
        "_readable",
        "_start",
        "_was_large",
        "_writable",
    )

    def __init__(
        self,
        *,
        frame_bytes_max: int,
        buffer_bytes: int = 65_536,
        frame_bytes_min: int = REQUEST_BYTES_MIN,
    ) -> None:
        assert buffer_bytes > _SIZE_BYTES
        assert 0 < frame_bytes_min <= frame_bytes_max
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_min = frame_bytes_min
        self._buffer_bytes = buffer_bytes
        # A frame larger than `buffer_bytes` came since the last `maybe_shrink`.
        self._was_large = False
        self._replace_buffer(buffer_bytes)
        self._start = 0
        self._end = 0

    def limit_frames(self, frame_bytes_max: int) -> None:
        """Set the largest frame that is accepted; a frame that was returned already is not concerned."""
        self._frame_bytes_max = max(frame_bytes_max, self._frame_bytes_min)

    @property
    def capacity(self) -> int:
        """Size of the buffer."""
        return self._capacity

    @property
    def is_mid_frame(self) -> bool:
        """True if the frame at the front is incomplete. False for a complete frame that was not taken yet."""
        unread = self._end - self._start
        if unread < _SIZE_BYTES:
            return unread > 0
        (size,) = _read_size(self._readable, self._start)
        return bool(size + _SIZE_BYTES > unread)

    @property
    def has_unread(self) -> bool:
        """True if bytes were received that no frame has consumed."""
        return self._end > self._start

    @property
    def is_full(self) -> bool:
        """True if there is no free space: before `get_buffer`, take frames or grow."""
        return self._end - self._start == self._capacity

    def get_buffer(self) -> memoryview:
        """Return the free space to receive into; never empty. Earlier frames become invalid.

        The buffer must not be full (`is_full`): take the frames first, and `grow` if needed.
        """
        start, end = self._start, self._end
        if start:
            if start == end:
                self._start = self._end = end = 0
            elif start > self._capacity - end:
                # Move only if that at least doubles the free space, so each byte is moved few times.
                self._writable[: end - start] = self._writable[start:end]
                end -= start
                self._start, self._end = 0, end
        assert end < self._capacity, f"no room: {end} of {self._capacity} bytes are unread"
        return self._writable[end:]

    def on_received(self, count: int) -> None:
        """`count` bytes were written to the front of the space from `get_buffer`."""
        assert 0 <= count <= self._capacity - self._end
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Return the next frame without its size, read-only, or None until more bytes come.

        The view is valid until the next call of `next_frame` or `get_buffer`.

        Raises:
            FrameTooLarge: the peer announced a frame we will not buffer.
            FrameMalformed: the announced size is negative or less than a header.
        """
        body = self._start + _SIZE_BYTES
        if body > self._end:
            return None
        (size,) = _read_size(self._readable, self._start)
        if not self._frame_bytes_min <= size <= self._frame_bytes_max:
            raise self._refusal(size)
        after = body + size
        if after > self._end:
            return None
        if size + _SIZE_BYTES > self._buffer_bytes:
            self._was_large = True
        self._start = after
        return self._readable[body:after]

    @property
    def growth_wanted(self) -> int:
        """How many more bytes the buffer needs now: 0 unless it is full with part of one frame.

        The buffer at most doubles, and never exceeds the frame: a peer gets memory only for bytes it has sent.
        """
        capacity = self._capacity
        if self._end - self._start < capacity:
            return 0
        (size,) = _read_size(self._readable, 0)
        # Frames that fit or are rejected need no more space: `next_frame` handles them.
        if not capacity - _SIZE_BYTES < size <= self._frame_bytes_max:
            return 0
        return int(min(capacity, size + _SIZE_BYTES - capacity))

    def grow(self) -> None:
        """Allocate what `growth_wanted` asks for."""
        growth = self.growth_wanted
        assert growth > 0
        held = self._readable
        self._replace_buffer(self._capacity + growth)
        self._writable[: len(held)] = held

    def maybe_shrink(self) -> int:
        """Shrink to `buffer_bytes` if possible; return the number of bytes freed.

        Not while bytes are unread, nor if a frame too large for the small buffer came since the last call. So call it
        periodically, also on idle connections: a stream of large frames keeps its buffer, and an idle connection frees
        it at the second call.
        """
        if self._was_large:
            self._was_large = False
            return 0
        if self._capacity == self._buffer_bytes or self._start != self._end:
            return 0
        released = self._capacity - self._buffer_bytes
        self._replace_buffer(self._buffer_bytes)
        self._start = self._end = 0
        return released

    def release(self) -> int:
        """Shrink to the unread bytes, because memory is short; return the number of bytes freed.

        Earlier frames stay valid.
        """
        unread = self._readable[self._start : self._end]
        capacity = max(self._buffer_bytes, len(unread))
        released = self._capacity - capacity
        if released <= 0:
            return 0
        self._replace_buffer(capacity)
        self._writable[: len(unread)] = unread
        self._start, self._end = 0, len(unread)
        return released

    def _replace_buffer(self, capacity: int) -> None:
        self._capacity = capacity
        self._writable = memoryview(bytearray(capacity))
        self._readable = self._writable.toreadonly()

    def _refusal(self, size: int) -> FrameTooLarge | FrameMalformed:
        if size > self._frame_bytes_max:
            return FrameTooLarge(size=size, limit=self._frame_bytes_max)
        return FrameMalformed(f"frame of {size} bytes, at least {self._frame_bytes_min} expected")
