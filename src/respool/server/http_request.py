"""The head of an HTTP/1 request, from bytes as they arrive. No I/O: feed it, then check `request` or `refusal`.

It parses only what a scrape or a health probe needs: method, path and a bearer token. Bodies are never read; each
connection has one request.
"""

from typing import NamedTuple
from urllib.parse import urlsplit

HEAD_BYTES_MAX = 8 * 1024

_END_OF_HEAD = (b"\r\n\r\n", b"\n\n")
_VERSIONS = ("HTTP/1.0", "HTTP/1.1")


class HttpRequest(NamedTuple):
    method: str
    # Without the query string.
    path: str
    # Of `Authorization: Bearer ...`; None without it, and where there are several.
    token: bytes | None = None

    def __repr__(self) -> str:
        # Without the token.
        return f"{self.method} {self.path}"


class HttpStatus(NamedTuple):
    code: int
    reason: str

    def __str__(self) -> str:
        return f"{self.code} {self.reason}"


OK = HttpStatus(200, "OK")
BAD_REQUEST = HttpStatus(400, "Bad Request")
UNAUTHORIZED = HttpStatus(401, "Unauthorized")
NOT_FOUND = HttpStatus(404, "Not Found")
METHOD_NOT_ALLOWED = HttpStatus(405, "Method Not Allowed")
HEAD_TOO_LARGE = HttpStatus(431, "Request Header Fields Too Large")
INTERNAL_ERROR = HttpStatus(500, "Internal Server Error")
UNAVAILABLE = HttpStatus(503, "Service Unavailable")
VERSION_NOT_SUPPORTED = HttpStatus(505, "HTTP Version Not Supported")


class HttpRequestReader:
    __slots__ = ("_received", "refusal", "request")

    def __init__(self) -> None:
        self._received = bytearray()
        # At most one of them is set, once; later bytes are ignored.
        self.request: HttpRequest | None = None
        self.refusal: HttpStatus | None = None

    @property
    def is_done(self) -> bool:
        return self.request is not None or self.refusal is not None

    def feed(self, data: bytes) -> None:
        if self.is_done:
            return
        self._received += data
        head = self._whole_head()
        if head is not None and len(head) <= HEAD_BYTES_MAX:
            self._read(head)
        elif head is not None or len(self._received) > HEAD_BYTES_MAX:
            self.refusal = HEAD_TOO_LARGE
        if self.is_done:
            self._received.clear()

    def _whole_head(self) -> bytes | None:
        for end in _END_OF_HEAD:
            at = self._received.find(end)
            if at >= 0:
                return bytes(self._received[:at])
        return None

    def _read(self, head: bytes) -> None:
        line = head.splitlines()[0] if head else b""
        try:
            method, target, version = line.decode("ascii").split(" ")
            path = urlsplit(target).path
        except ValueError:
            self.refusal = BAD_REQUEST
            return
        if not version.startswith("HTTP/") or not method.isalpha():
            self.refusal = BAD_REQUEST
        elif version not in _VERSIONS:
            self.refusal = VERSION_NOT_SUPPORTED
        else:
            self.request = HttpRequest(method, path, _bearer_token(head))


def _bearer_token(head: bytes) -> bytes | None:
    found = [
        value.strip()
        for name, _, value in (line.partition(b":") for line in head.splitlines()[1:])
        if name.lower() == b"authorization"
    ]
    if len(found) != 1:
        return None
    scheme, _, token = found[0].partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None
