"""ShareGroupHeartbeat (KIP-932) over the protocol."""

import pytest

from broker.group_client import (
    UNKNOWN_MEMBER_ID,
    let_pass,
    restart,
)
from broker.running_broker import RunningBroker
from broker.share_group_client import (
    SESSION_MS,
    assigned,
    beat,
    describe,
    offsets,
    topic_id,
)
from respool.model.internal_topics import SHARE_GROUP_STATE


def test_the_first_heartbeat_is_answered_with_the_partitions(broker: RunningBroker) -> None:
    reply = beat(broker, "one", 0, "orders")
    assert (reply.error_code, reply.member_id) == (0, "one")
    assert assigned(reply) == {topic_id(broker): [0, 1, 2]}
    assert beat(broker, "one", reply.member_epoch).assignment is None
    second = beat(broker, "two", 0, "orders")
    assert len(assigned(second)[topic_id(broker)]) in {1, 2}
    told = describe(broker)
    assert (told.error_code, told.group_state, told.assignor_name) == (0, "Stable", "simple")
    assert {one.member_id: list(one.subscribed_topic_names) for one in told.members} == {
        "one": ["orders"],
        "two": ["orders"],
    }


def test_the_topic_of_states_is_as_it_must_be(broker: RunningBroker) -> None:
    beat(broker, "one", 0, "orders")
    topic = broker.broker.image.topics[SHARE_GROUP_STATE]
    assert topic.internal
    assert len(topic.partitions) == 2
    # Compaction would lose updates, which share their key and add up.
    assert topic.overrides["cleanup.policy"] == "delete"
    assert topic.overrides["retention.ms"] == "-1"
    assert topic.overrides["respool.flush"] == "always"


@pytest.mark.parametrize("crash", [False, True])
def test_a_group_survives_a_restart(broker: RunningBroker, *, crash: bool) -> None:
    reply = beat(broker, "one", 0, "orders")
    restart(broker, crash=crash)
    again = beat(broker, "one", reply.member_epoch)
    assert (again.error_code, again.member_epoch) == (0, reply.member_epoch)
    assert [one.member_id for one in describe(broker).members] == ["one"]
    assert [one.start_offset for one in offsets(broker).topics[0].partitions] == [-1] * 3


def test_a_silent_member_is_removed(broker: RunningBroker) -> None:
    epoch = beat(broker, "one", 0, "orders").member_epoch
    let_pass(broker, SESSION_MS)
    assert beat(broker, "one", epoch).error_code == UNKNOWN_MEMBER_ID
