"""ACLs and quotas by requests to a broker."""

import pytest

from respool.client.kafka.acls import (
    alter_quota,
    create_acls,
    delete_acls,
    describe_acls,
    describe_quotas,
)
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerRefused
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
from respool.testing import Broker

ACLS = [
    AclBinding(
        ResourcePattern(AclResource.TOPIC, "or", PatternType.PREFIXED),
        AclEntry("User:a", AclOperation.READ, Permission.DENY, "10.0.0.0/8"),
    ),
    AclBinding(
        ResourcePattern(AclResource.GROUP, "*"), AclEntry("User:*", AclOperation.ALTER_CONFIGS)
    ),
]


def test_what_is_created_is_described_and_deleted() -> None:
    with Broker(settings={"authorization": "observe"}) as broker:
        cluster = Cluster(broker.bootstrap)
        create_acls(cluster, ACLS)
        assert sorted(describe_acls(cluster, AclFilter()), key=str) == sorted(ACLS, key=str)
        wanted = AclFilter(resource=AclResource.TOPIC, name="orders", matches_name=True)
        assert describe_acls(cluster, wanted) == ACLS[:1]
        assert delete_acls(cluster, [AclFilter(permission=Permission.DENY)]) == ACLS[:1]
        assert describe_acls(cluster, AclFilter()) == ACLS[1:]

        alter_quota(cluster, {"user": None, "client-id": "app"}, {"producer_byte_rate": 5.0})
        (quota,) = describe_quotas(cluster)
        assert (quota.entity, quota.limits) == (
            {"user": None, "client-id": "app"},
            {"producer_byte_rate": 5.0},
        )
        alter_quota(cluster, quota.entity, {"producer_byte_rate": None})
        assert describe_quotas(cluster) == []
        cluster.close()


def test_a_broker_that_knows_none_says_so() -> None:
    with Broker() as broker:
        cluster = Cluster(broker.bootstrap)
        with pytest.raises(BrokerRefused, match="ACLs are off"):
            create_acls(cluster, ACLS)
        cluster.close()
