"""Users with SCRAM credentials: listed, stored and removed through brokers. Passwords are salted here, not sent."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.model.security.scram_credential import (
    ITERATIONS_MAX,
    SALT_BYTES,
    SCRAM_HASHES,
    salted_password,
)
from respool.model.security.security_errors import CredentialNotFound
from respool.wire.api_table import Api

RESOURCE_NOT_FOUND = CredentialNotFound.code
# Kafka's numbers.
_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDescription:
    name: str
    # Mechanism -> iterations.
    credentials: dict[str, int]


def list_users(cluster: Cluster, names: Iterable[str] = ()) -> list[UserDescription]:
    """These users, or all; those that do not exist are left out.

    Raises:
        BrokerRefused
        BrokerUnreachable
    """
    wanted = [{"name": name} for name in names]
    reply = cluster.request_any(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": wanted or None})
    if reply.error_code:
        raise refused("users", reply.error_code, reply.error_message)
    return [
        UserDescription(
            name=str(one.user),
            credentials={
                _NAMES[each.mechanism]: int(each.iterations)
                for each in one.credential_infos
                if each.mechanism in _NAMES
            },
        )
        for one in reply.results
        if one.error_code != RESOURCE_NOT_FOUND
    ]


def store_password(cluster: Cluster, name: str, password: str) -> None:
    """Store credentials of every mechanism for the user, who is created if there is none.

    Raises:
        BrokerRefused
        BrokerUnreachable
    """
    upsertions = []
    for mechanism in SCRAM_HASHES:
        salt = secrets.token_bytes(SALT_BYTES)
        upsertions.append(
            {
                "name": name,
                "mechanism": _NUMBERS[mechanism],
                "iterations": ITERATIONS_MAX,
                "salt": salt,
                "salted_password": salted_password(
                    mechanism, password, salt=salt, iterations=ITERATIONS_MAX
                ),
            }
        )
    _alter(cluster, name, {"deletions": [], "upsertions": upsertions})


def remove_user(cluster: Cluster, found: UserDescription) -> None:
    """Remove the user with all its credentials: its connections end at once.

    Raises:
        BrokerRefused
        BrokerUnreachable
    """
    deletions = [
        {"name": found.name, "mechanism": _NUMBERS[mechanism]} for mechanism in found.credentials
    ]
    _alter(cluster, found.name, {"deletions": deletions, "upsertions": []})


def _alter(cluster: Cluster, name: str, fields: dict[str, object]) -> None:
    reply = cluster.request_any(Api.ALTER_USER_SCRAM_CREDENTIALS, fields)
    for one in reply.results:
        if one.error_code:
            raise refused(f"user {name!r}", one.error_code, one.error_message)
