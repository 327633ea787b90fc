"""Fields that requests and replies about delegation tokens share."""

from datetime import timedelta

from respool.model.errors import RequestError
from respool.wire.codec import Request, encode_reply

_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(duration: timedelta) -> int:
    """A duration of a request; negative ones have a meaning of their own."""
    return duration // _MILLISECOND


def encode_expiry(request: Request, answer: int | RequestError) -> bytes:
    """The reply with the time when a token expires, or with the error."""
    is_refused = isinstance(answer, RequestError)
    fields = {
        "error_code": answer.code if isinstance(answer, RequestError) else 0,
        "expiry_timestamp": 0 if is_refused else answer,
        "throttle_time": 0,
    }
    return encode_reply(request, fields)
