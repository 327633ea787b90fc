"""Clients' requests to change quotas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from respool.cluster import access_keys
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView
from respool.model.errors import InvalidRequest, PolicyViolation, RequestError
from respool.model.security.quota import QuotaEntity, StoredQuota, check_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    entity: QuotaEntity
    # By name; None: there is no such limit any more.
    limits: Mapping[str, float | None]


def alter_quotas(
    view: ClusterView, changes: Sequence[QuotaChange | RequestError], *, entities_max: int
) -> tuple[list[RequestError | None], list[GuardedWrite]]:
    """Return what becomes of each change, and the writes. A change is made as a whole or not at all.

    `changes` has an error in place of each invalid quota.
    """
    results: list[RequestError | None] = []
    written: list[KeyChange] = []
    seen: set[QuotaEntity] = set()
    count = len(view.image.quotas.by_entity)
    for one in changes:
        try:
            if isinstance(one, RequestError):
                raise one
            if one.entity in seen:
                raise InvalidRequest("the entity is in the request more than once")
            seen.add(one.entity)
            before = view.image.quotas.by_entity.get(one.entity, StoredQuota({}))
            after = _after(one, before)
            if before.revision == 0 and after:
                if count >= entities_max:
                    raise PolicyViolation(
                        f"there are {count} quotas, limit quota_entities_max = {entities_max}"
                    )
                count += 1
        except RequestError as error:
            results.append(error)
            continue
        results.append(None)
        if after != before.limits:
            written.append(
                KeyChange(
                    key=access_keys.quota_key(one.entity),
                    value=access_keys.encode_quota(after) if after else None,
                    revision=before.revision,
                    why=f"quota of {dict(one.entity)}",
                )
            )
    return results, in_writes(written, guard=view.guard)


def _after(change: QuotaChange, before: StoredQuota) -> dict[str, float]:
    after = dict(before.limits)
    for name, value in change.limits.items():
        if value is None:
            after.pop(name, None)
        else:
            check_limit(change.entity, name, value)
            after[name] = value
    return after
