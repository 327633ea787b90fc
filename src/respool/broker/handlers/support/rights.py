"""The rights that APIs need and the operations that resources have: Kafka's ACL operations and resource types.

Each handler declares its rights where it is registered (`registration.py`), and asks `broker/access_control.py` for
them about each resource that the request names, before it looks whether that exists.
"""

from dataclasses import dataclass, replace

from respool.model.cluster import TopicImage
from respool.model.security.acl import (
    TOPIC_OPERATIONS,
    AclOperation,
    AclResource,
)


@dataclass(frozen=True, slots=True)
class Right:
    """An operation on each resource that a request names."""

    operation: AclOperation
    resource: AclResource
    # When the right is needed; empty: always.
    condition: str = ""

    def when(self, condition: str) -> "Right":
        return replace(self, condition=condition)

    def __or__(self, other: "Right") -> "AnyRight":
        return AnyRight((self, other))


@dataclass(frozen=True, slots=True)
class AnyRight:
    """A choice of rights: one of them is enough."""

    rights: tuple[Right, ...]


READ_TOPIC = Right(AclOperation.READ, AclResource.TOPIC)
WRITE_TOPIC = Right(AclOperation.WRITE, AclResource.TOPIC)
CREATE_TOPIC = Right(AclOperation.CREATE, AclResource.TOPIC)
DELETE_TOPIC = Right(AclOperation.DELETE, AclResource.TOPIC)
ALTER_TOPIC = Right(AclOperation.ALTER, AclResource.TOPIC)
DESCRIBE_TOPIC = Right(AclOperation.DESCRIBE, AclResource.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC)
ALTER_TOPIC_CONFIGS = Right(AclOperation.ALTER_CONFIGS, AclResource.TOPIC)
READ_GROUP = Right(AclOperation.READ, AclResource.GROUP)
DELETE_GROUP = Right(AclOperation.DELETE, AclResource.GROUP)
DESCRIBE_GROUP = Right(AclOperation.DESCRIBE, AclResource.GROUP)
DESCRIBE_GROUP_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, AclResource.GROUP)
ALTER_GROUP_CONFIGS = Right(AclOperation.ALTER_CONFIGS, AclResource.GROUP)
WRITE_TRANSACTIONAL_ID = Right(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Right(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID)
CREATE_ON_CLUSTER = Right(AclOperation.CREATE, AclResource.CLUSTER)
DELETE_ON_CLUSTER = Right(AclOperation.DELETE, AclResource.CLUSTER)
ALTER_CLUSTER = Right(AclOperation.ALTER, AclResource.CLUSTER)
DESCRIBE_CLUSTER = Right(AclOperation.DESCRIBE, AclResource.CLUSTER)
CLUSTER_ACTION = Right(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER)
ALTER_CLUSTER_CONFIGS = Right(AclOperation.ALTER_CONFIGS, AclResource.CLUSTER)
IDEMPOTENT_WRITE = Right(AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER)
DESCRIBE_DELEGATION_TOKEN = Right(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN)
CREATE_TOKENS_OF_USER = Right(AclOperation.CREATE_TOKENS, AclResource.USER)
DESCRIBE_TOKENS_OF_USER = Right(AclOperation.DESCRIBE_TOKENS, AclResource.USER)


# In a reply: the client did not request the operations.
NOT_ASKED = -(2**31)

# A view is read, and administered like a topic; nobody writes to it.
VIEW_OPERATIONS = TOPIC_OPERATIONS & ~(1 << AclOperation.WRITE)


def operations_of(topic: TopicImage) -> int:
    """The operations that a topic or view has."""
    return TOPIC_OPERATIONS if topic.view is None else VIEW_OPERATIONS
