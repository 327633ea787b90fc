"""ExpireDelegationToken (key 40): lets a token end sooner, or at once.

Its owner, requester and renewers may.
"""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.token_fields import encode_expiry, milliseconds
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(Api.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), rights=())
async def expire_delegation_token(request: Request, broker: Broker) -> Reply:
    body = request.body
    answer: int | RequestError
    try:
        broker.logins.delegation_tokens.check_session(request.session)
        answer = await broker.logins.delegation_tokens.expire(
            request.session, bytes(body.hmac), period_ms=milliseconds(body.expiry_time_period)
        )
        broker.admin_log.log(request, "expired a delegation token")
    except RequestError as error:
        answer = error
    return [encode_expiry(request, answer)]
