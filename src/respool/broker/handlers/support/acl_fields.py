"""ACLs in the fields of requests and replies."""

from typing import Any, TypeVar

from respool.model.errors import InvalidRequest
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

# Kafka's numbers that stand for several, in filters.
ANY = 1
MATCH = 2

Number = TypeVar("Number", AclResource, AclOperation, Permission, PatternType)


def acl_of(creation: Any) -> AclBinding:
    """
    Raises:
        InvalidRequest: a field has none of the values that an ACL can have.
    """
    pattern = getattr(creation, "resource_pattern_type", PatternType.LITERAL)
    return AclBinding(
        ResourcePattern(
            _number(AclResource, creation.resource_type, "resource type"),
            creation.resource_name,
            _number(PatternType, pattern, "pattern type"),
        ),
        AclEntry(
            creation.principal,
            _number(AclOperation, creation.operation, "operation"),
            _number(Permission, creation.permission_type, "permission"),
            creation.host,
        ),
    )


def filter_of(fields: Any) -> AclFilter:
    """
    Raises:
        InvalidRequest: a field has none of the values that a filter can have.
    """
    pattern = getattr(fields, "pattern_type_filter", PatternType.LITERAL)
    return AclFilter(
        resource=_number_or_any(AclResource, fields.resource_type_filter, "resource type"),
        name=fields.resource_name_filter,
        pattern=(
            None if pattern == MATCH else _number_or_any(PatternType, pattern, "pattern type")
        ),
        matches_name=pattern == MATCH,
        principal=fields.principal_filter,
        host=fields.host_filter,
        operation=_number_or_any(AclOperation, fields.operation, "operation"),
        permission=_number_or_any(Permission, fields.permission_type, "permission"),
    )


def pattern_fields(pattern: ResourcePattern) -> dict[str, object]:
    return {
        "resource_type": pattern.resource,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern,
    }


def entry_fields(entry: AclEntry) -> dict[str, object]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def _number(kind: type[Number], number: int, what: str) -> Number:
    try:
        return kind(number)
    except ValueError:
        raise InvalidRequest(f"an ACL has no {what} {number}") from None


def _number_or_any(kind: type[Number], number: int, what: str) -> Number | None:
    return None if number == ANY else _number(kind, number, what)
