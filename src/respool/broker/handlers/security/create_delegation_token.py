"""CreateDelegationToken (key 38): creates a login that the owner can hand to others, with an expiry time."""

from respool.broker.admin_log import quoted
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.rights import CREATE_TOKENS_OF_USER
from respool.broker.handlers.support.token_fields import milliseconds
from respool.broker.logins.delegation_tokens import TokenRequest
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.security.delegation_token import DelegationToken
from respool.model.security.principal import USER, Principal
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(
    Api.CREATE_DELEGATION_TOKEN,
    versions=(1, 3),
    rights=(CREATE_TOKENS_OF_USER.when("the token is for another user"),),
)
async def create_delegation_token(request: Request, broker: Broker) -> Reply:
    body = request.body
    requester = request.session.principal
    owner = requester
    # An older version has no owner.
    if getattr(body, "owner_principal_name", None):
        owner = Principal(body.owner_principal_name, body.owner_principal_type or USER)
    asked = TokenRequest(
        owner=owner,
        requester=requester,
        renewers=tuple(Principal(one.principal_name, one.principal_type) for one in body.renewers),
        lifetime_ms=milliseconds(body.max_lifetime),
    )
    token = None
    try:
        broker.logins.delegation_tokens.check_session(request.session)
        if owner != requester:
            _check_right(request, broker, owner)
        token = await broker.logins.delegation_tokens.create(asked)
        error_code = 0
        broker.admin_log.log(
            request, f"made delegation token {token.id} of {quoted(str(token.owner))}"
        )
    except RequestError as error:
        error_code = error.code
    fields = {
        "error_code": error_code,
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "throttle_time": 0,
        **_made(broker, token),
    }
    return [encode_reply(request, fields)]


def _check_right(request: Request, broker: Broker, owner: Principal) -> None:
    access = broker.access
    access.check(request, CREATE_TOKENS_OF_USER, str(owner))
    # Acting for another user needs an explicit permission, even where ACLs are off or only observed.
    if not access.is_on or not access.has(request, CREATE_TOKENS_OF_USER, str(owner)):
        raise access.denial(CREATE_TOKENS_OF_USER)


def _made(broker: Broker, token: DelegationToken | None) -> dict[str, object]:
    return {
        "issue_timestamp": token.issued_ms if token else 0,
        "expiry_timestamp": token.expires_ms if token else 0,
        "max_timestamp": token.max_ms if token else 0,
        "token_id": token.id if token else "",
        "hmac": broker.logins.delegation_tokens.hmac_of(token) if token else b"",
    }
