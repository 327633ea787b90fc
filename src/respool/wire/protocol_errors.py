"""Protocol violations by a peer, which end the connection.

A `ProtocolViolation` is neither the client's `RequestError` (no reply can contain it) nor ours: the connection is
closed and the reason is logged. Code that reads frames and requests catches this family only.
"""

from respool.model.errors import RespoolError


class ProtocolViolation(RespoolError):
    """The peer violates the protocol; its connection is closed."""


class FrameTooLarge(ProtocolViolation):
    """A frame was announced that exceeds the limit."""

    def __init__(self, *, size: int, limit: int) -> None:
        super().__init__(f"frame of {size} bytes, limit {limit}")
        self.size = size


class FrameMalformed(ProtocolViolation):
    """A frame was announced with a size that is negative or less than a header."""


class RequestMalformed(ProtocolViolation):
    """A complete frame whose bytes do not match its header."""


class UnsupportedApi(ProtocolViolation):
    """The API is unknown, or not in this version.

    Kafka closes the connection too, except for ApiVersions, which gets a reply (`codec.api_versions_fallback`).
    """

    def __init__(self, *, key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"api key {key} in version {version} is not served")
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
