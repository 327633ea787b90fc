"""What a peer can do to the protocol that leaves nothing to say but goodbye.

A `ProtocolViolation` is neither the client's `RequestError` (there is no reply it could go into) nor ours: the
connection is closed and the reason is logged. Whoever reads frames and requests need catch only this family.
"""

from respool.model.errors import RespoolError


class ProtocolViolation(RespoolError):
    """The peer does not speak the protocol as we do; its connection is closed."""


class FrameTooLarge(ProtocolViolation):
    """A frame was announced that is larger than we will buffer."""

    def __init__(self, *, size: int, limit: int) -> None:
        super().__init__(f"frame of {size} bytes, limit {limit}")
        self.size = size


class FrameMalformed(ProtocolViolation):
    """A frame was announced whose size is negative or too small to hold a header."""


class RequestMalformed(ProtocolViolation):
    """A whole frame came, but its bytes are not the request that its header promises."""


class UnsupportedApi(ProtocolViolation):
    """The API is unknown here, or not in this version.

    Kafka closes the connection too, but for ApiVersions, which is answered (`codec.api_versions_fallback`).
    """

    def __init__(self, *, key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"api key {key} in version {version} is not served")
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
