"""DescribeDelegationToken (key 41): the tokens that the client owns or may renew, and those that it may describe."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import (
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_TOKENS_OF_USER,
)
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.security.delegation_token import DelegationToken
from respool.model.security.principal import Principal
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(
    Api.DESCRIBE_DELEGATION_TOKEN,
    versions=(1, 3),
    rights=((DESCRIBE_DELEGATION_TOKEN | DESCRIBE_TOKENS_OF_USER),),
)
def describe_delegation_token(request: Request, broker: Broker) -> Reply:
    error_code, found = 0, list[DelegationToken]()
    try:
        broker.logins.delegation_tokens.check_session(request.session)
        found = _asked_for(request, broker)
    except RequestError as error:
        error_code = error.code
    fields = {
        "error_code": error_code,
        "tokens": [_fields(broker, one) for one in found],
        "throttle_time": 0,
    }
    return [encode_reply(request, fields)]


def _asked_for(request: Request, broker: Broker) -> list[DelegationToken]:
    owners = request.body.owners
    named = None
    if owners is not None:
        named = [Principal(one.principal_name, one.principal_type) for one in owners]
    return [
        one
        for one in broker.logins.delegation_tokens.valid()
        if (named is None or any(map(one.may_renew, named))) and _may_see(request, broker, one)
    ]


def _may_see(request: Request, broker: Broker, token: DelegationToken) -> bool:
    if token.may_renew(request.session.principal):
        return True
    access = broker.access
    # The reply has the token's password, so without ACLs only its owner and renewers get it.
    return access.is_on and (
        access.has(request, DESCRIBE_DELEGATION_TOKEN, token.id)
        or access.has(request, DESCRIBE_TOKENS_OF_USER, str(token.owner))
    )


def _fields(broker: Broker, token: DelegationToken) -> dict[str, object]:
    return {
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.type,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.id,
        "hmac": broker.logins.delegation_tokens.hmac_of(token),
        "renewers": [
            {"principal_type": one.type, "principal_name": one.name} for one in token.renewers
        ],
    }
