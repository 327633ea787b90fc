"""What requests about delegation tokens share: fields, and the change of an expiry."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from respool.broker.broker import Broker
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.security.principal import ClientSession
from respool.wire.codec import Request, encode_reply

_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(duration: timedelta) -> int:
    """A duration of a request; negative ones have a meaning of their own."""
    return duration // _MILLISECOND


async def change_expiry(
    request: Request,
    broker: Broker,
    change: Callable[[ClientSession, bytes], Awaitable[int]],
    *,
    done: str,
) -> Reply:
    """Change the expiry of the request's token; reply with the new one. `done` is the line for the admin log."""
    code, expires_ms = 0, 0
    try:
        broker.logins.delegation_tokens.check_session(request.session)
        expires_ms = await change(request.session, bytes(request.body.hmac))
        broker.admin_log.log(request, done)
    except RequestError as error:
        code = error.code
    fields = {"error_code": code, "expiry_timestamp": expires_ms, "throttle_time": 0}
    return [encode_reply(request, fields)]
