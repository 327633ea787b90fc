"""ExpireDelegationToken (key 40): lets a token end sooner, or at once.

Its owner, requester and renewers may.
"""

from functools import partial

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.token_fields import change_expiry, milliseconds
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(Api.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), rights=())
async def expire_delegation_token(request: Request, broker: Broker) -> Reply:
    tokens = broker.logins.delegation_tokens
    change = partial(tokens.expire, period_ms=milliseconds(request.body.expiry_time_period))
    return await change_expiry(request, broker, change, done="expired a delegation token")
