"""DescribeUserScramCredentials (key 50): the mechanisms and iterations of users, never their keys or salts."""

from collections import Counter

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER
from respool.broker.outcome import Reply
from respool.model.errors import RequestError
from respool.model.security.principal import AuthenticationMethod
from respool.model.security.security_errors import CredentialNamedTwice, CredentialNotFound
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

# Kafka's numbers.
MECHANISM_NUMBERS = {
    AuthenticationMethod.SCRAM_SHA_256.value: 1,
    AuthenticationMethod.SCRAM_SHA_512.value: 2,
}


@serves(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), rights=(DESCRIBE_CLUSTER,))
def describe_user_scram_credentials(request: Request, broker: Broker) -> Reply:
    refusal = broker.access.refusal(request, DESCRIBE_CLUSTER)
    if refusal is not None:
        # An unauthorized client learns nothing about users, not even about those it named.
        fields = {"throttle_time": 0, **error_fields(refusal), "results": ()}
        return [encode_reply(request, fields)]
    users = broker.image.users
    # Null means all users, and so does an empty list. librdkafka expects a result for each that it names.
    named = Counter(one.name for one in request.body.users or ()) or Counter(sorted(users))
    results = [_described(broker, user, times) for user, times in named.items()]
    return [encode_reply(request, {"throttle_time": 0, **error_fields(None), "results": results})]


def _described(broker: Broker, name: str, times: int) -> dict[str, object]:
    user = broker.image.users.get(name)
    error: RequestError | None = None
    if times > 1:
        error = CredentialNamedTwice("the request names the user more than once")
    elif user is None:
        error = CredentialNotFound("Attempt to describe a user credential that does not exist")
    credentials = () if user is None or error is not None else user.credentials.values()
    return {
        "user": name,
        **error_fields(error),
        "credential_infos": [
            {"mechanism": MECHANISM_NUMBERS[one.mechanism], "iterations": one.iterations}
            for one in sorted(credentials, key=lambda one: one.mechanism)
        ],
    }
