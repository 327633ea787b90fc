"""The text format of Kafka's checkpoint files: a version, a line count, and the lines.

```
0
2
orders 0 1234
orders 1 17
```
The files are replaced atomically, so a wrong length means damage, not an incomplete write.
"""

from collections.abc import Collection

VERSION = "0"


def encode_lines(lines: Collection[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, str(len(lines)), *lines)).encode("ascii")


def decode_lines(data: bytes, *, words: int) -> list[list[str]]:
    """Return the words of each line; each must have `words` words.

    Raises:
        ValueError: the text is not such a checkpoint; the message says why.
    """
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {data[error.start]:#04x} at {error.start} is not text") from None
    version, _, rest = text.partition("\n")
    count, _, rest = rest.partition("\n")
    if version != VERSION:
        raise ValueError(f"version {version!r}, only {VERSION!r} is known")
    if rest and not rest.endswith("\n"):
        raise ValueError("the last line is incomplete")
    lines = rest.split("\n")[:-1]
    if parse_number(count) != len(lines):
        raise ValueError(f"{count} lines announced, {len(lines)} found")
    split = [line.split(" ") for line in lines]
    for line, parts in zip(lines, split, strict=True):
        if len(parts) != words:
            raise ValueError(f"line {line!r} has {len(parts)} words, expected {words}")
    return split


def parse_number(text: str) -> int:
    """Parse a number as we and Kafka write it: digits only. `int` would also accept '1_0', ' 1' and '+1'."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a number")
    return int(text)
