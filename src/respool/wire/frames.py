"""Bytes from a socket -> whole frames. No I/O: receive into it, then ask.

```
 0      4                4 + size
 | size | size bytes ... |      big-endian, signed; size does not count itself
```
One buffer per connection is filled in place and frames are handed out as views of it: nothing is copied but the piece
of an incomplete frame that moves to the front now and then. Memory is taken as bytes arrive, never because a peer
announced a length, and only when the owner of the memory says so (`growth_wanted`, then `grow`).
"""

from struct import Struct

from respool.wire.protocol_errors import FrameMalformed, FrameTooLarge

# Api key, version and correlation id: what the shortest request header holds.
REQUEST_BYTES_MIN = 8

_SIZE_BYTES = 4
_read_size = Struct(">i").unpack_from


class FrameReader:
    """The receiving half of one connection.

    ```
    0          _start              _end              capacity
    | consumed  | received, unread  | free            |
    ```
    Invariant: 0 <= _start <= _end <= capacity. A frame handed out lies before `_start`, so it counts as consumed and
    is overwritten by what comes after the next `get_buffer`.
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

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return self._capacity

    @property
    def is_mid_frame(self) -> bool:
        """Whether the peer owes us the rest of the frame at the front. A whole frame not taken yet is not its fault."""
        unread = self._end - self._start
        if unread < _SIZE_BYTES:
            return unread > 0
        (size,) = _read_size(self._readable, self._start)
        return bool(size + _SIZE_BYTES > unread)

    @property
    def has_unread(self) -> bool:
        """Whether anything was received that no frame has taken."""
        return self._end > self._start

    @property
    def is_full(self) -> bool:
        """Whether there is no room left: `get_buffer` must wait until frames are taken, or until it has grown."""
        return self._end - self._start == self._capacity

    def get_buffer(self) -> memoryview:
        """Return the free space to receive into; never empty. Frames handed out before are invalid from here on.

        The buffer must not be full (`is_full`): take the frames out first, and `grow` if that is wanted.
        """
        start, end = self._start, self._end
        if start:
            if start == end:
                self._start = self._end = end = 0
            elif start > self._capacity - end:
                # Moving pays once it at least doubles the free space; so a byte is moved few times, however it comes.
                self._writable[: end - start] = self._writable[start:end]
                end -= start
                self._start, self._end = 0, end
        assert end < self._capacity, f"no room: {end} of {self._capacity} bytes are unread"
        return self._writable[end:]

    def on_received(self, count: int) -> None:
        """`count` bytes were written to the front of what `get_buffer` returned."""
        assert 0 <= count <= self._capacity - self._end
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Return the next frame without its size, read-only, or None until more bytes come.

        The view is valid until the next call of `next_frame` or `get_buffer`.

        Raises:
            FrameTooLarge: the peer announced a frame we will not buffer.
            FrameMalformed: the announced size is negative or below any header's.
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
        """How many bytes more the buffer needs now: 0 unless it is full with a part of one frame.

        It doubles at most, and never beyond what the frame needs: who announces much gets memory only for what it sent.
        """
        capacity = self._capacity
        if self._end - self._start < capacity:
            return 0
        (size,) = _read_size(self._readable, 0)
        # Of a frame that fits, or is refused, no more is wanted: `next_frame` has it.
        if not capacity - _SIZE_BYTES < size <= self._frame_bytes_max:
            return 0
        return int(min(capacity, size + _SIZE_BYTES - capacity))

    def grow(self) -> None:
        """Take the memory that `growth_wanted` asks for."""
        growth = self.growth_wanted
        assert growth > 0
        held = self._readable
        self._replace_buffer(self._capacity + growth)
        self._writable[: len(held)] = held

    def maybe_shrink(self) -> int:
        """Go back to `buffer_bytes` and return the number of bytes given back; 0 when there is a reason not to.

        Reasons: bytes are unread, or a frame too large for the small buffer came since the last call. So call it
        from time to time, also on connections that are silent: a stream of large frames keeps its buffer, and a
        connection that has fallen silent gives it back at the second call.
        """
        if self._was_large:
            self._was_large = False
            return 0
        if self._capacity == self._buffer_bytes or self._start != self._end:
            return 0
        given_back = self._capacity - self._buffer_bytes
        self._replace_buffer(self._buffer_bytes)
        self._start = self._end = 0
        return given_back

    def release(self) -> int:
        """Shrink to what the unread bytes need, others want the memory; return the number of bytes given back.

        Frames handed out before stay as they are until they are forgotten.
        """
        unread = self._readable[self._start : self._end]
        capacity = max(self._buffer_bytes, len(unread))
        given_back = self._capacity - capacity
        if given_back <= 0:
            return 0
        self._replace_buffer(capacity)
        self._writable[: len(unread)] = unread
        self._start, self._end = 0, len(unread)
        return given_back

    def _replace_buffer(self, capacity: int) -> None:
        self._capacity = capacity
        self._writable = memoryview(bytearray(capacity))
        self._readable = self._writable.toreadonly()

    def _refusal(self, size: int) -> FrameTooLarge | FrameMalformed:
        if size > self._frame_bytes_max:
            return FrameTooLarge(size=size, limit=self._frame_bytes_max)
        return FrameMalformed(f"frame of {size} bytes, at least {self._frame_bytes_min} expected")
