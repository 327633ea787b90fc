"""Delegation tokens (KIP-48): made, listed, renewed and expired through brokers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.versions import VersionRange
from respool.model.security.principal import Principal
from respool.wire.api_table import Api

# As a lifetime or a period: as long as the brokers allow.
LONGEST = -1
# As a period until a token expires: it is deleted, and its connections end.
AT_ONCE = -1
# The versions that name an owner.
_WITH_OWNER = VersionRange(3, 3)
_EPOCH = datetime.fromtimestamp(0, tz=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDescription:
    """A token as brokers describe it; times are in milliseconds since the epoch."""

    id: str
    # The password, in base64 as clients log in with it.
    hmac: bytes = field(repr=False)
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


def create_token(
    cluster: Cluster,
    *,
    owner: Principal | None = None,
    renewers: Sequence[Principal] = (),
    lifetime_ms: int = LONGEST,
) -> TokenDescription:
    """Make a token; without an owner, for the principal that asks.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    fields = {
        "owner_principal_type": owner.type if owner else None,
        "owner_principal_name": owner.name if owner else None,
        "renewers": [_fields(one) for one in renewers],
        "max_lifetime": lifetime_ms,
    }
    reply = _ask(
        cluster,
        Api.CREATE_DELEGATION_TOKEN,
        fields,
        doing="making a delegation token",
        # Older versions would make it for the principal that asks.
        versions=None if owner is None else _WITH_OWNER,
    )
    made_for = Principal(str(reply.principal_name), str(reply.principal_type))
    return TokenDescription(
        id=str(reply.token_id),
        hmac=bytes(reply.hmac),
        owner=made_for,
        requester=_requester(reply, made_for),
        renewers=tuple(renewers),
        issued_ms=_milliseconds(reply.issue_timestamp),
        expires_ms=_milliseconds(reply.expiry_timestamp),
        max_ms=_milliseconds(reply.max_timestamp),
    )


def list_tokens(
    cluster: Cluster, owners: Sequence[Principal] | None = None
) -> list[TokenDescription]:
    """The tokens of these owners, or all that the client may see.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    wanted = None if owners is None else [_fields(one) for one in owners]
    reply = _ask(
        cluster,
        Api.DESCRIBE_DELEGATION_TOKEN,
        {"owners": wanted},
        doing="listing delegation tokens",
    )
    return [_described(one) for one in reply.tokens]


def renew_token(cluster: Cluster, token: TokenDescription, *, period_ms: int = LONGEST) -> int:
    """Return until when it is valid now.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    reply = _ask(
        cluster,
        Api.RENEW_DELEGATION_TOKEN,
        {"hmac": token.hmac, "renew_period": period_ms},
        doing=f"renewing delegation token {token.id}",
    )
    return _milliseconds(reply.expiry_timestamp)


def expire_token(cluster: Cluster, token: TokenDescription, *, period_ms: int = AT_ONCE) -> int:
    """Return when it expires.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    reply = _ask(
        cluster,
        Api.EXPIRE_DELEGATION_TOKEN,
        {"hmac": token.hmac, "expiry_time_period": period_ms},
        doing=f"expiring delegation token {token.id}",
    )
    return _milliseconds(reply.expiry_timestamp)


def _ask(
    cluster: Cluster,
    api: Api,
    fields: Mapping[str, Any],
    *,
    doing: str,
    versions: VersionRange | None = None,
) -> Any:
    reply = cluster.request_any(api, fields, versions=versions)
    if reply.error_code:
        raise refused(doing, reply.error_code)
    return reply


def _fields(principal: Principal) -> dict[str, str]:
    return {"principal_type": principal.type, "principal_name": principal.name}


def _described(one: Any) -> TokenDescription:
    owner = Principal(str(one.principal_name), str(one.principal_type))
    return TokenDescription(
        id=str(one.token_id),
        hmac=bytes(one.hmac),
        owner=owner,
        requester=_requester(one, owner),
        renewers=tuple(
            Principal(str(each.principal_name), str(each.principal_type)) for each in one.renewers
        ),
        issued_ms=int(one.issue_timestamp),
        expires_ms=int(one.expiry_timestamp),
        max_ms=int(one.max_timestamp),
    )


def _requester(fields: Any, owner: Principal) -> Principal:
    """Versions before 3 do not say who asked for a token: then it was the owner."""
    name = getattr(fields, "token_requester_principal_name", None)
    return Principal(str(name), str(fields.token_requester_principal_type)) if name else owner


def _milliseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
