"""Decodes ACLs and quotas to the cluster image. Only changed keys are read again."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from respool.cluster import access_keys
from respool.model.cluster import ClusterImage
from respool.model.security.acl import (
    AclEntry,
    AclImage,
    AclOperation,
    Permission,
    ResourcePattern,
    StoredAcls,
)
from respool.model.security.quota import QuotaEntity, QuotaImage, StoredQuota
from respool.ports.metadata_store import StoredValue

logger = logging.getLogger(__name__)

Values = Mapping[str, StoredValue]


def with_access(image: ClusterImage, values: Values, changed: Iterable[str]) -> ClusterImage:
    """The image with these keys, as far as they are about access, as they are now."""
    acls = [key for key in changed if key.startswith(access_keys.ACLS)]
    if acls:
        image = replace(image, acls=_with_acls(image.acls, values, sorted(acls)))
    quotas = [key for key in changed if key.startswith(access_keys.QUOTAS)]
    if quotas:
        image = replace(image, quotas=_with_quotas(image.quotas, values, sorted(quotas)))
    return image


def _with_acls(before: AclImage, values: Values, changed: Iterable[str]) -> AclImage:
    patterns: dict[ResourcePattern, StoredAcls] = dict(before.by_pattern)
    count = before.count
    for key in changed:
        try:
            pattern = access_keys.parse_acl_key(key)
        except (KeyError, ValueError):
            logger.error("ACLs of a newer version are passed over: %s", key)
            continue
        held = patterns.pop(pattern, None)
        count -= 0 if held is None else len(held.entries)
        stored = values.get(key)
        if stored is not None:
            patterns[pattern] = _read(pattern, stored)
            count += len(patterns[pattern].entries)
    return AclImage(by_pattern=patterns, count=count)


def _read(pattern: ResourcePattern, stored: StoredValue) -> StoredAcls:
    try:
        return access_keys.decode_acls(stored.value, revision=stored.revision)
    except (KeyError, TypeError, ValueError) as error:
        # A DENY could be among what this version does not understand.
        logger.error("the ACLs of %s cannot be read, so everything is denied: %r", pattern, error)
        denied = AclEntry("User:*", AclOperation.ALL, Permission.DENY)
        return StoredAcls((denied,), stored.revision)


def _with_quotas(before: QuotaImage, values: Values, changed: Iterable[str]) -> QuotaImage:
    quotas: dict[QuotaEntity, StoredQuota] = dict(before.by_entity)
    for key in changed:
        try:
            entity = access_keys.parse_quota_key(key)
            stored = values.get(key)
            if stored is None:
                quotas.pop(entity, None)
            else:
                quotas[entity] = access_keys.decode_quota(stored.value, revision=stored.revision)
        except (KeyError, TypeError, ValueError) as error:
            logger.error("a quota of a newer version is passed over: %s: %r", key, error)
    return QuotaImage(by_entity=quotas)
