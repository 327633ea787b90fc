"""The rights that APIs need and the operations that resources have: Kafka's ACL operations and resource types.

Each handler declares its rights where it is registered (`registration.py`). They are recorded, not enforced: without an
authorizer, replies tell clients that every operation is allowed (KIP-430).
"""

from dataclasses import dataclass, replace
from enum import IntEnum

from respool.model.cluster import TopicImage


class AclOperation(IntEnum):
    """Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclResource(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


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


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


# In a reply: the client did not request the operations.
NOT_ASKED = -(2**31)

TOPIC_OPERATIONS = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

# A view is read, and administered like a topic; nobody writes to it.
VIEW_OPERATIONS = TOPIC_OPERATIONS & ~_bits(AclOperation.WRITE)

GROUP_OPERATIONS = _bits(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE)

CLUSTER_OPERATIONS = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)


def operations_of(topic: TopicImage) -> int:
    """The operations that a topic or view has."""
    return TOPIC_OPERATIONS if topic.view is None else VIEW_OPERATIONS
