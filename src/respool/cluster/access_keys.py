"""Keys and JSON values of ACLs and quotas; see `keys.py`.

All ACLs of one pattern are one key, so that a change of a resource's ACLs is never seen by halves. Names are in base64,
since a group's name may have any character.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping

from respool.cluster.keys import to_json
from respool.model.security.acl import (
    AclEntry,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    ResourcePattern,
    StoredAcls,
)
from respool.model.security.quota import QuotaEntity, StoredQuota

ACLS = "/acls/"
QUOTAS = "/quotas/"


def acl_key(pattern: ResourcePattern) -> str:
    resource, kind = pattern.resource.name.lower(), pattern.pattern.name.lower()
    return f"{ACLS}{resource}/{kind}/{_encode_name(pattern.name)}"


def parse_acl_key(key: str) -> ResourcePattern:
    resource, kind, name = key.removeprefix(ACLS).split("/")
    return ResourcePattern(
        AclResource[resource.upper()], _decode_name(name), PatternType[kind.upper()]
    )


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    return to_json(
        {
            "entries": [
                {
                    "principal": one.principal,
                    "operation": one.operation.name,
                    "permission": one.permission.name,
                    "host": one.host,
                }
                for one in entries
            ]
        }
    )


def decode_acls(value: bytes, *, revision: int) -> StoredAcls:
    """
    Raises:
        KeyError: a newer version stored an entry that this version does not know.
    """
    entries = tuple(
        AclEntry(
            principal=one["principal"],
            operation=AclOperation[one["operation"]],
            permission=Permission[one["permission"]],
            host=one["host"],
        )
        for one in json.loads(value)["entries"]
    )
    return StoredAcls(entries, revision)


def quota_key(entity: QuotaEntity) -> str:
    return QUOTAS + _encode_name(to_json(dict(entity)).decode())


def parse_quota_key(key: str) -> QuotaEntity:
    fields = json.loads(_decode_name(key.removeprefix(QUOTAS)))
    return tuple(sorted(fields.items()))


def encode_quota(limits: Mapping[str, float]) -> bytes:
    return to_json({"limits": dict(limits)})


def decode_quota(value: bytes, *, revision: int) -> StoredQuota:
    return StoredQuota(limits=json.loads(value)["limits"], revision=revision)


def _encode_name(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _decode_name(text: str) -> str:
    return urlsafe_b64decode(text).decode()
