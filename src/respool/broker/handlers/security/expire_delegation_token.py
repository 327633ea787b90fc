"""ExpireDelegationToken (key 40): there are no delegation tokens. Kafka lets owners and renewers, without a right."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.without_security import NO_TOKENS
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), rights=())
def expire_delegation_token(request: Request, _broker: Broker) -> Reply:
    fields = {"error_code": NO_TOKENS.code, "expiry_timestamp": 0, "throttle_time": 0}
    return [encode_reply(request, fields)]
