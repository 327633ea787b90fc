"""AlterUserScramCredentials (key 51): there are no logins, so no credential is stored. Passwords are not looked at."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.security_errors import (
    CredentialNamedTwice,
    CredentialNotFound,
    UnsupportedSaslMechanism,
)
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), rights=(ALTER_CLUSTER,))
def alter_user_scram_credentials(request: Request, _broker: Broker) -> Reply:
    errors: dict[str, RequestError] = {}
    for one in request.body.deletions:
        errors[one.name] = (
            CredentialNamedTwice("the request names the user more than once")
            if one.name in errors
            else CredentialNotFound(
                "this broker has no logins, so there is no credential to delete"
            )
        )
    for one in request.body.upsertions:
        errors[one.name] = (
            CredentialNamedTwice("the request names the user more than once")
            if one.name in errors
            else UnsupportedSaslMechanism(
                "this broker has no logins, so a credential would let nobody in: it was not stored"
            )
        )
    results = [{"user": user, **error_fields(error)} for user, error in errors.items()]
    return [encode_reply(request, {"throttle_time": 0, "results": results})]
