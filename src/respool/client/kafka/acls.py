"""Creates, deletes and describes ACLs, and client quotas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.controller import check_answer, request_controller
from respool.model.security.acl import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    ResourcePattern,
)
from respool.wire.api_table import Api

_ANY = 1
_MATCH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    # Names by type: user, client-id, ip; None is the default.
    entity: Mapping[str, str | None]
    limits: Mapping[str, float]


def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[AclBinding]:
    """
    Raises:
        BrokerRefused, BrokerUnreachable
    """
    reply = cluster.request_any(Api.DESCRIBE_ACLS, _filter_fields(wanted))
    check_answer("describing ACLs", reply)
    return [
        AclBinding(_pattern_of(resource), _entry_of(one))
        for resource in reply.resources
        for one in resource.acls
    ]


def create_acls(cluster: Cluster, acls: Sequence[AclBinding]) -> None:
    """
    Raises:
        BrokerRefused, BrokerUnreachable
    """
    creations = [
        {
            "resource_type": int(one.pattern.resource),
            "resource_name": one.pattern.name,
            "resource_pattern_type": int(one.pattern.pattern),
            "principal": one.entry.principal,
            "host": one.entry.host,
            "operation": int(one.entry.operation),
            "permission_type": int(one.entry.permission),
        }
        for one in acls
    ]
    request_controller(
        cluster,
        Api.CREATE_ACLS,
        {"creations": creations},
        doing="creating ACLs",
        answers_of=lambda reply: reply.results,
    )


def delete_acls(cluster: Cluster, filters: Iterable[AclFilter]) -> list[AclBinding]:
    """Delete what the filters select, and return it.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    reply = request_controller(
        cluster,
        Api.DELETE_ACLS,
        {"filters": [_filter_fields(one) for one in filters]},
        doing="deleting ACLs",
        answers_of=lambda reply: reply.filter_results,
    )
    return [
        AclBinding(_pattern_of(one), _entry_of(one))
        for result in reply.filter_results
        for one in result.matching_acls
    ]


def describe_quotas(cluster: Cluster) -> list[ClientQuota]:
    """
    Raises:
        BrokerRefused, BrokerUnreachable
    """
    reply = cluster.request_any(Api.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
    check_answer("describing quotas", reply)
    return [
        ClientQuota(
            entity={str(part.entity_type): part.entity_name for part in one.entity},
            limits={str(value.key): float(value.value) for value in one.values},
        )
        for one in reply.entries or ()
    ]


def alter_quota(
    cluster: Cluster, entity: Mapping[str, str | None], limits: Mapping[str, float | None]
) -> None:
    """Set limits; None removes one.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in limits.items()
        ],
    }
    request_controller(
        cluster,
        Api.ALTER_CLIENT_QUOTAS,
        {"entries": [entry], "validate_only": False},
        doing="altering a quota",
        answers_of=lambda reply: reply.entries,
    )


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    pattern = _MATCH if wanted.matches_name else wanted.pattern or _ANY
    return {
        "resource_type_filter": int(wanted.resource or _ANY),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(pattern),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation or _ANY),
        "permission_type": int(wanted.permission or _ANY),
    }


def _pattern_of(fields: Any) -> ResourcePattern:
    return ResourcePattern(
        AclResource(fields.resource_type),
        str(fields.resource_name),
        PatternType(fields.pattern_type),
    )


def _entry_of(fields: Any) -> AclEntry:
    return AclEntry(
        str(fields.principal),
        AclOperation(fields.operation),
        Permission(fields.permission_type),
        str(fields.host),
    )
