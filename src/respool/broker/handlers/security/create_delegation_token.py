"""CreateDelegationToken (key 38): there are no delegation tokens."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import CREATE_TOKENS_OF_USER
from respool.broker.handlers.support.without_security import NO_TOKENS
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(
    Api.CREATE_DELEGATION_TOKEN,
    versions=(1, 3),
    rights=(CREATE_TOKENS_OF_USER.when("the token is for another user"),),
)
def create_delegation_token(request: Request, _broker: Broker) -> Reply:
    fields = {
        "error_code": NO_TOKENS.code,
        "principal_type": "",
        "principal_name": "",
        "token_requester_principal_type": "",
        "token_requester_principal_name": "",
        "issue_timestamp": 0,
        "expiry_timestamp": 0,
        "max_timestamp": 0,
        "token_id": "",
        "hmac": b"",
        "throttle_time": 0,
    }
    return [encode_reply(request, fields)]
