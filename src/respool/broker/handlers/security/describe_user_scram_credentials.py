"""DescribeUserScramCredentials (key 50): there are no users, so each one that is named is unknown."""

from collections import Counter

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER
from respool.broker.outcome import Reply
from respool.model.security_errors import CredentialNamedTwice, CredentialNotFound
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), rights=(DESCRIBE_CLUSTER,))
def describe_user_scram_credentials(request: Request, _broker: Broker) -> Reply:
    # Null means all users. librdkafka expects a result for each that it names.
    named = Counter(one.name for one in request.body.users or ())
    results = [
        {
            "user": user,
            **error_fields(
                CredentialNotFound("this broker has no logins, so it has no users")
                if times == 1
                else CredentialNamedTwice("the request names the user more than once")
            ),
            "credential_infos": (),
        }
        for user, times in named.items()
    ]
    return [encode_reply(request, {"throttle_time": 0, **error_fields(None), "results": results})]
