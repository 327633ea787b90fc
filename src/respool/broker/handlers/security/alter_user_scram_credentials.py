"""AlterUserScramCredentials (key 51): stores and deletes the SCRAM credentials of users.

Clients send salted passwords: a broker never sees the password itself.
"""

from respool.broker.admin_log import listed, quoted
from respool.broker.broker import Broker
from respool.broker.handlers.security.describe_user_scram_credentials import MECHANISM_NUMBERS
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.rights import ALTER_CLUSTER
from respool.broker.outcome import Reply
from respool.cluster.access.user_requests import CredentialChange
from respool.model.errors import RequestError
from respool.model.security.security_errors import CredentialNamedTwice
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply

_MECHANISMS = {number: name for name, number in MECHANISM_NUMBERS.items()}


@serves(Api.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), rights=(ALTER_CLUSTER,))
async def alter_user_scram_credentials(request: Request, broker: Broker) -> Reply:
    asked: dict[str, list[CredentialChange]] = {}
    for one in request.body.deletions:
        asked.setdefault(one.name, []).append(
            CredentialChange(user=one.name, mechanism=_MECHANISMS.get(one.mechanism, ""))
        )
    for one in request.body.upsertions:
        asked.setdefault(one.name, []).append(
            CredentialChange(
                user=one.name,
                mechanism=_MECHANISMS.get(one.mechanism, ""),
                salted_password=bytes(one.salted_password),
                salt=bytes(one.salt),
                iterations=one.iterations,
            )
        )
    refusal = broker.access.refusal(request, ALTER_CLUSTER)
    errors = await _change(broker, asked) if refusal is None else dict.fromkeys(asked, refusal)
    changed = [quoted(user) for user, error in errors.items() if error is None]
    if changed:
        broker.admin_log.log(request, f"changed the credentials of users: {listed(changed)}")
    results = [{"user": user, **error_fields(error)} for user, error in errors.items()]
    return [encode_reply(request, {"throttle_time": 0, "results": results})]


async def _change(
    broker: Broker, asked: dict[str, list[CredentialChange]]
) -> dict[str, RequestError | None]:
    """Change each user on its own; return the errors in the request's order."""
    twice = {
        user
        for user, changes in asked.items()
        if len({one.mechanism for one in changes}) < len(changes)
    }
    changed = await broker.login_changes.change_users(
        {user: changes for user, changes in asked.items() if user not in twice}
    )
    return {
        user: CredentialNamedTwice("A user credential cannot be altered twice in the same request")
        if user in twice
        else changed[user]
        for user in asked
    }
