"""ShareGroupDescribe, and share groups among others."""

from broker.group_client import (
    GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP,
    restart,
)
from broker.running_broker import RunningBroker
from broker.share_group_client import (
    GROUP,
    INVALID_REQUEST,
    beat,
    describe,
    topic_id,
)
from respool.coordination.share.share_state import ShareKey
from respool.wire.api_table import Api


def test_share_groups_are_listed_and_deleted_like_others(broker: RunningBroker) -> None:
    beat(broker, "one", 0, "orders")
    listed = broker.ask(Api.LIST_GROUPS, 5, states_filter=[], types_filter=["Share"]).groups
    assert [(one.group_id, one.group_type, one.protocol_type) for one in listed] == [
        (GROUP, "share", "share")
    ]
    names = [GROUP, "none"]

    def deleted() -> list[int]:
        reply = broker.ask(Api.DELETE_GROUPS, 2, groups_names=names)
        assert [one.group_id for one in reply.results] == names
        return [one.error_code for one in reply.results]

    assert deleted() == [NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND]
    beat(broker, "one", -1)
    assert deleted() == [0, GROUP_ID_NOT_FOUND]
    assert describe(broker).error_code == GROUP_ID_NOT_FOUND
    restart(broker, crash=True)
    assert deleted() == [GROUP_ID_NOT_FOUND] * 2
    key = ShareKey(GROUP, topic_id(broker), 0)
    (left,) = broker.run(broker.broker.coordinators.share_states.summarize([key])).values()
    assert getattr(left, "code", None) == GROUP_ID_NOT_FOUND


def test_the_coordinator_of_a_share_partition_is_found(broker: RunningBroker) -> None:
    keys = [f"g:{'A' * 22}:0", "a:b:" + "_-" * 11 + ":12", "g", "g:AAAA:0", f"g:{'A' * 22}:x"]
    found = broker.ask(Api.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=keys).coordinators
    assert [one.error_code for one in found] == [0, 0, *[INVALID_REQUEST] * 3]
