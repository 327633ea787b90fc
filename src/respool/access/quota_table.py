"""Which quota applies to a client: the most specific one, for each limit by itself, in Kafka's order.

```
user alice, client id app | user alice, default client id | user alice
default user, client id app | default user, default client id | default user | client id app | default client id
```
Clients that one quota covers share its bucket if it names them; a default gives each of them a bucket of their own.
"""

from dataclasses import dataclass

from respool.model.security.quota import CLIENT_ID, IP, USER, QuotaEntity, QuotaImage

# Longer names share one bucket: clients choose their names.
NAME_LENGTH_MAX = 255
OTHERS = ""


@dataclass(frozen=True, slots=True)
class AppliedQuota:
    """A limit of a client, and the key of its bucket. None in the key stands for any name."""

    limit: str
    rate: float
    user: str | None
    client_id: str | None

    @property
    def bucket(self) -> tuple[str, str | None, str | None]:
        return self.limit, self.user, self.client_id


def quota_of(
    quotas: QuotaImage, limit: str, *, user: str, client_id: str | None
) -> AppliedQuota | None:
    """The quota of this limit that applies to the client; None: no limit."""
    name = _counted(client_id or OTHERS)
    by_entity = quotas.by_entity
    for entity_user, entity_client in (
        (user, name),
        (user, None),
        (user, _NO_PART),
        (None, name),
        (None, None),
        (None, _NO_PART),
        (_NO_PART, name),
        (_NO_PART, None),
    ):
        stored = by_entity.get(_entity(entity_user, entity_client))
        rate = None if stored is None else stored.limits.get(limit)
        if rate is not None:
            return AppliedQuota(
                limit,
                rate,
                None if entity_user is _NO_PART else _counted(user),
                None if entity_client is _NO_PART else name,
            )
    return None


def address_limit(quotas: QuotaImage, limit: str, address: str) -> float | None:
    """The limit of an address: its own, or the default's; None: no limit."""
    for name in (address, None):
        stored = quotas.by_entity.get(((IP, name),))
        if stored is not None and limit in stored.limits:
            return stored.limits[limit]
    return None


class _NoPart:
    """The entity has no name of this type, which is not the same as the default name."""


_NO_PART = _NoPart()


def _entity(user: str | _NoPart | None, client_id: str | _NoPart | None) -> QuotaEntity:
    parts: list[tuple[str, str | None]] = []
    if not isinstance(client_id, _NoPart):
        parts.append((CLIENT_ID, client_id))
    if not isinstance(user, _NoPart):
        parts.append((USER, user))
    return tuple(parts)


def _counted(name: str) -> str:
    return name if len(name) <= NAME_LENGTH_MAX else OTHERS
