"""Client quotas as values: who is limited, and Kafka's limits.

A quota belongs to an entity: a user, a client id, both, or an address; None as a name stands for the default, which is
everyone of that type without a quota of their own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from respool.model.errors import InvalidRequest
from respool.model.security.acl import checked_host

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_LIMITS = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
# Whole numbers, as in Kafka.
_WHOLE = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE)
NAME_BYTES_MAX = 255

# The names by type, sorted by type, so that equal entities are equal keys.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class StoredQuota:
    limits: Mapping[str, float]
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaImage:
    """All quotas of the cluster, as stored."""

    by_entity: Mapping[QuotaEntity, StoredQuota] = field(default_factory=dict)


def checked_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """
    Raises:
        InvalidRequest: there is no such entity.
    """
    found: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(
                f"{kind!r} is not an entity type of quotas: use user, client-id or ip"
            )
        if kind in found:
            raise InvalidRequest(f"the entity has two names of the type {kind!r}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} is not supported: null is the default")
        if name is not None and len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidRequest(f"the {kind} is longer than {NAME_BYTES_MAX} bytes")
        found[kind] = name
    if not found:
        raise InvalidRequest("the entity of a quota is empty")
    if IP in found:
        if len(found) > 1:
            raise InvalidRequest("a quota of an address has no user and no client id")
        address = found[IP]
        if address is not None:
            if "/" in address or address == "*":
                raise InvalidRequest(f"{address!r} is no IP address")
            found[IP] = checked_host(address)
    return tuple(sorted(found.items()))


def check_limit(entity: QuotaEntity, name: str, value: float) -> None:
    """
    Raises:
        InvalidRequest: the entity has no such limit, or the value is invalid.
    """
    known = (CONNECTION_CREATION_RATE,) if entity[0][0] == IP else CLIENT_LIMITS
    if name not in known:
        raise InvalidRequest(f"unknown quota {name!r}: here it is one of {', '.join(known)}")
    # Not `value <= 0`, which NaN is not.
    if not 0 < value < float(2**63):
        raise InvalidRequest(
            f"{name} = {value}: a quota is a positive number; to stop a client, deny it with an ACL"
        )
    if name in _WHOLE and value != int(value):
        raise InvalidRequest(f"{name} = {value} is not a whole number")
