"""RenewDelegationToken (key 39): makes a token valid for longer, up to its maximum lifetime.

Its owner, requester and renewers may.
"""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.token_fields import encode_expiry, milliseconds
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(Api.RENEW_DELEGATION_TOKEN, versions=(1, 2), rights=())
async def renew_delegation_token(request: Request, broker: Broker) -> Reply:
    body = request.body
    answer: int | RequestError
    try:
        broker.logins.delegation_tokens.check_session(request.session)
        answer = await broker.logins.delegation_tokens.renew(
            request.session, bytes(body.hmac), period_ms=milliseconds(body.renew_period)
        )
        broker.admin_log.log(request, "renewed a delegation token")
    except RequestError as error:
        answer = error
    return [encode_expiry(request, answer)]
