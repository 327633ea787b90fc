"""The subject of a certificate, from DER to the text that Kafka's rules see (RFC 2253, as Java writes it).

    SEQUENCE of SETs of SEQUENCE { OID, string }      ->      CN=broker-1,OU=kafka,O=Example,C=DE

The last part of the DER comes first. Attributes without a name in RFC 2253 are `OID=#hex of the DER`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_EXPLICIT_VERSION = 0xA0
_UTC_TIME = 0x17
# UTF8String, NumericString, PrintableString, T61String, IA5String, UniversalString, BMPString
_STRINGS = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
# `#` is escaped only at the beginning, blanks only at the ends.
_ESCAPED = frozenset(',=+<>#;"\\')


class NotACertificate(ValueError):
    """The bytes are no certificate with a subject."""


class _Item(NamedTuple):
    tag: int
    content: bytes
    # With tag and length.
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER.

    Raises:
        NotACertificate
    """
    try:
        [outer] = _items(certificate)
        signed = next(_items(outer.content))
        fields = [one for one in _items(signed.content) if one.tag != _EXPLICIT_VERSION]
        # Serial number, signature algorithm, issuer, validity, subject.
        return name_text(fields[4].whole)
    except (IndexError, StopIteration, ValueError) as error:
        raise NotACertificate(f"not a certificate: {error}") from None


def validity_of(certificate: bytes) -> tuple[int, int]:
    """Start and end of the validity of a certificate in DER, in milliseconds since the epoch.

    Raises:
        NotACertificate
    """
    try:
        [outer] = _items(certificate)
        signed = next(_items(outer.content))
        fields = [one for one in _items(signed.content) if one.tag != _EXPLICIT_VERSION]
        begins, ends = (_time_ms(one) for one in _items(fields[3].content))
    except (IndexError, StopIteration, ValueError) as error:
        raise NotACertificate(f"not a certificate: {error}") from None
    return begins, ends


def _time_ms(item: _Item) -> int:
    text = item.content.decode("ascii")
    if item.tag == _UTC_TIME:
        # RFC 5280: two digits of the year, from 1950 to 2049.
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def name_text(der: bytes) -> str:
    """
    Raises:
        ValueError: not a distinguished name.
    """
    [name] = _items(der)
    if name.tag != _SEQUENCE:
        raise ValueError("not a distinguished name")
    parts = []
    for relative in _items(name.content):
        if relative.tag != _SET:
            raise ValueError("not a relative distinguished name")
        # Java sorts the attributes of one part.
        parts.append("+".join(sorted(_attribute(one) for one in _items(relative.content))))
    return ",".join(reversed(parts))


def _attribute(item: _Item) -> str:
    kind, value = _items(item.content)
    if item.tag != _SEQUENCE or kind.tag != _OID:
        raise ValueError("not an attribute of a name")
    oid = _dotted(kind.content)
    name = _NAMES.get(oid)
    if name is None or value.tag not in _STRINGS:
        return f"{name or oid}=#{value.whole.hex()}"
    return f"{name}={_escaped(value.content.decode(_STRINGS[value.tag]))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{one}" if one in _ESCAPED else one for one in text)
    if text.startswith(" "):
        escaped = f"\\{escaped}"
    if text.endswith(" ") and len(text) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped


def _dotted(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers or content[-1] & 0x80:
        raise ValueError("not an object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _items(data: bytes) -> Iterator[_Item]:
    """The items of DER, one after the other."""
    at = 0
    while at < len(data):
        begin, tag, length = at, data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4 or at + count > len(data):
                raise ValueError("an invalid length")
            length = int.from_bytes(data[at : at + count])
            at += count
        if at + length > len(data):
            raise ValueError("a truncated item")
        yield _Item(tag, data[at : at + length], data[begin : at + length])
        at += length
