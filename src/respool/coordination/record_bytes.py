"""Reads and writes the primitive types of Kafka's records in internal topics.

```
 up to a certain version              in "flexible" versions
 string   length 2 | bytes            string   varint length + 1 | bytes
 bytes    length 4 | bytes            bytes    varint length + 1 | bytes
 array    count 4  | items            array    varint count + 1  | items
 null     length -1                   null     0
                                      and after each struct its tagged fields:
                                      varint count | varint tag | varint size | bytes | ...
```
Integers are big-endian. A varint here is unsigned: seven bits per byte, lowest first; the top bit means that another
byte follows.
"""

from struct import Struct, error

from respool.model.errors import StorageError

STRING_BYTES_MAX = 2**15 - 1

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_VARINT_BITS_MAX = 35


class CoordinatorRecordDamaged(StorageError):
    """A record of an internal topic cannot be read, so the coordinator's state is unknown."""


def fits_a_string(text: str) -> bool:
    """True if the text fits into a string field with a 2-byte length."""
    # A character takes at most four bytes, so short texts need not be encoded.
    return len(text) <= STRING_BYTES_MAX // 4 or len(text.encode()) <= STRING_BYTES_MAX


class RecordReader:
    """Reads the fields of one struct in order; `is_flexible` may be set once the version is known."""

    __slots__ = ("_data", "_position", "_what", "is_flexible")

    def __init__(self, data: bytes, *, what: str, is_flexible: bool = False) -> None:
        self._data = data
        self._what = what
        self._position = 0
        self.is_flexible = is_flexible

    def int16(self) -> int:
        return self._integer(_INT16)

    def int32(self) -> int:
        return self._integer(_INT32)

    def int64(self) -> int:
        return self._integer(_INT64)

    def fields(self, form: Struct) -> tuple[int, ...]:
        """Read several fixed-size fields at once, for records that are read often."""
        try:
            values = form.unpack_from(self._data, self._position)
        except error:
            raise self.damaged(f"truncated, {form.size} more bytes expected") from None
        self._position += form.size
        return values

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self.damaged("a string is null that cannot be")
        return text

    def nullable_string(self) -> str | None:
        length = self._varint() - 1 if self.is_flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as failure:
            raise self.damaged(f"a string is not UTF-8: {failure}") from None

    def bytes_(self) -> bytes:
        length = self._varint() - 1 if self.is_flexible else self.int32()
        if length < 0:
            raise self.damaged("bytes are null that cannot be")
        return self._take(length)

    def count(self) -> int:
        """Read the number of items of an array; 0 for a null array."""
        number = self._varint() - 1 if self.is_flexible else self.int32()
        # Every item has at least one byte, so this rejects a damaged count before the caller loops over it.
        if number > len(self._data) - self._position:
            raise self.damaged(f"an array announces {number} items")
        return max(0, number)

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields after a struct; empty before flexible versions."""
        if not self.is_flexible:
            return {}
        fields = {}
        for _ in range(self._varint()):
            tag = self._varint()
            fields[tag] = self._take(self._varint())
        return fields

    def end(self) -> None:
        """Check that all bytes have been read."""
        left = len(self._data) - self._position
        if left:
            raise self.damaged(f"{left} bytes too many")

    def damaged(self, why: str) -> CoordinatorRecordDamaged:
        return CoordinatorRecordDamaged(
            f"{self._what} of {len(self._data)} bytes, at byte {self._position}: {why}"
        )

    def _integer(self, form: Struct) -> int:
        return self.fields(form)[0]

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise self.damaged(f"truncated, {length} more bytes expected")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _varint(self) -> int:
        # Nearly all varints have one byte.
        first = self._data[self._position : self._position + 1]
        if first and first[0] < 0x80:
            self._position += 1
            return first[0]
        value = shift = 0
        while shift < _VARINT_BITS_MAX:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise self.damaged("a number is longer than 32 bits")


class RecordWriter:
    """Writes the fields of one record in order; without a version, only a part of a record."""

    __slots__ = ("_is_flexible", "_out")

    def __init__(self, *, version: int | None = None, is_flexible: bool = False) -> None:
        self._out = bytearray() if version is None else bytearray(_INT16.pack(version))
        self._is_flexible = is_flexible

    def int32(self, value: int) -> None:
        self._out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._out += _INT64.pack(value)

    def string(self, text: str | None) -> None:
        data = None if text is None else text.encode()
        length = -1 if data is None else len(data)
        if self._is_flexible:
            self._varint(length + 1)
        else:
            # Texts were checked with `fits_a_string` when they entered the coordinator.
            assert length <= STRING_BYTES_MAX, length
            self._out += _INT16.pack(length)
        self._out += data or b""

    def bytes_(self, data: bytes) -> None:
        self.count(len(data))
        self._out += data

    def count(self, number: int) -> None:
        if self._is_flexible:
            self._varint(number + 1)
        else:
            self._out += _INT32.pack(number)

    def tagged_fields(self, fields: dict[int, bytes]) -> None:
        """Write tagged fields, in ascending order of tags; they follow each struct of a flexible version."""
        if not self._is_flexible:
            return
        self._varint(len(fields))
        for tag, data in sorted(fields.items()):
            self._varint(tag)
            self._varint(len(data))
            self._out += data

    def done(self) -> bytes:
        return bytes(self._out)

    def _varint(self, value: int) -> None:
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)
