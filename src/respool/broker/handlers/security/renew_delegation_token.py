"""RenewDelegationToken (key 39): makes a token valid for longer, up to its maximum lifetime.

Its owner, requester and renewers may.
"""

from functools import partial

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.token_fields import change_expiry, milliseconds
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request


@serves(Api.RENEW_DELEGATION_TOKEN, versions=(1, 2), rights=())
async def renew_delegation_token(request: Request, broker: Broker) -> Reply:
    tokens = broker.logins.delegation_tokens
    change = partial(tokens.renew, period_ms=milliseconds(request.body.renew_period))
    return await change_expiry(request, broker, change, done="renewed a delegation token")
