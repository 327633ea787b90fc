"""What a client may do with the cluster, as Metadata and DescribeCluster tell it (KIP-430)."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.rights import DESCRIBE_CLUSTER
from respool.model.security.acl import AclResource
from respool.wire.codec import Request


def cluster_operations_of(request: Request, broker: Broker) -> int:
    """The operations as bits; none for a client that may not describe the cluster."""
    if not broker.access.sees(request, DESCRIBE_CLUSTER):
        return 0
    return broker.access.operations(request, AclResource.CLUSTER)
