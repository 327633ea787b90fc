"""DescribeDelegationToken (key 41): there are no delegation tokens."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import (
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_TOKENS_OF_USER,
)
from respool.broker.handlers.support.without_security import NO_TOKENS
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(
    Api.DESCRIBE_DELEGATION_TOKEN,
    versions=(1, 3),
    rights=((DESCRIBE_DELEGATION_TOKEN | DESCRIBE_TOKENS_OF_USER),),
)
def describe_delegation_token(request: Request, _broker: Broker) -> Reply:
    fields = {"error_code": NO_TOKENS.code, "tokens": (), "throttle_time": 0}
    return [encode_reply(request, fields)]
