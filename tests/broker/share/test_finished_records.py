"""Topics with respool.share.delete.finished=true: the log start follows the slowest share group."""

import logging
from typing import Any

import pytest

from broker.group_client import commit, start_with_groups
from broker.handlers.share_groups.share_client import ShareMember
from broker.running_broker import RunningBroker, StartBroker
from respool.broker.share import share_starts
from respool.model.coordinator_errors import CoordinatorNotAvailable
from respool.wire.api_table import Api

ACCEPT, RELEASE = 1, 2
INVALID_CONFIG = 40
TOPIC_RESOURCE = 2
SETTING = "respool.share.delete.finished"


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker, share_coordinator_state_topic_partitions=2)
    broker.create_topic("orders", respool_share_delete_finished="true")
    for group in ("billing", "shipping"):
        broker.set_for_group(group, {"share.auto.offset.reset": "earliest"})
    broker.produce("orders", values=tuple(b"%d" % one for one in range(10)))
    return broker


def member_of(broker: RunningBroker, group: str = "billing") -> ShareMember:
    member = ShareMember(broker, group=group)
    member.join()
    return member


def start_after_deletion(broker: RunningBroker) -> int:
    broker.run(broker.broker.shares.finished.delete())
    return broker.broker.partitions.find("orders", 0).log_start


def configure(broker: RunningBroker, value: str) -> Any:
    configs = [{"name": SETTING, "config_operation": 0, "value": value}]
    reply = broker.ask(
        Api.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[
            {"resource_type": TOPIC_RESOURCE, "resource_name": "orders", "configs": configs}
        ],
        validate_only=False,
    )
    return reply.responses[0]


def test_the_log_start_follows_the_slowest_group(broker: RunningBroker) -> None:
    billing, shipping = member_of(broker), member_of(broker, "shipping")
    assert billing.take() == [(0, 9, 1)]
    assert shipping.take() == [(0, 9, 1)]
    assert start_after_deletion(broker) == 0
    billing.acknowledge((0, 9, ACCEPT))
    assert start_after_deletion(broker) == 0
    # A record that is not finished stays, and all behind it.
    shipping.acknowledge((0, 3, ACCEPT), (4, 4, RELEASE), (5, 9, ACCEPT))
    assert start_after_deletion(broker) == 4
    assert shipping.take() == [(4, 4, 2)]
    shipping.acknowledge((4, 4, ACCEPT))
    assert start_after_deletion(broker) == 10


def test_nothing_is_deleted_without_a_group_and_before_one_has_a_start(
    broker: RunningBroker,
) -> None:
    assert start_after_deletion(broker) == 0
    billing = member_of(broker)
    billing.take()
    billing.acknowledge((0, 9, ACCEPT))
    # It has joined, and fetched nothing.
    member_of(broker, "shipping")
    assert start_after_deletion(broker) == 0


def test_a_topic_without_the_setting_keeps_what_is_finished(broker: RunningBroker) -> None:
    assert configure(broker, "false").error_code == 0
    billing = member_of(broker)
    billing.take()
    billing.acknowledge((0, 9, ACCEPT))
    assert start_after_deletion(broker) == 0


def test_the_setting_is_refused_while_a_group_of_consumers_has_offsets(
    broker: RunningBroker,
) -> None:
    assert configure(broker, "false").error_code == 0
    assert commit(broker, "reports", ("orders", 0, 3)) == [0]
    refused = configure(broker, "true")
    assert refused.error_code == INVALID_CONFIG
    assert "reports" in refused.error_message
    config = broker.broker.partitions.find("orders", 0).config
    assert not config.respool_share_delete_finished


def test_nothing_is_deleted_while_a_group_of_consumers_has_offsets(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    billing = member_of(broker)
    billing.take()
    billing.acknowledge((0, 9, ACCEPT))
    assert commit(broker, "reports", ("orders", 0, 3)) == [0]
    with caplog.at_level(logging.WARNING):
        assert start_after_deletion(broker) == 0
        assert start_after_deletion(broker) == 0
    assert [one.getMessage() for one in caplog.records if "reports" in one.getMessage()] == [
        f"orders: nothing is deleted though {SETTING} = true: groups reports have offsets there"
    ]


def test_nothing_is_deleted_while_a_coordinator_does_not_answer(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = member_of(broker)
    billing.take()
    billing.acknowledge((0, 9, ACCEPT))

    async def refuse(*_: object) -> None:
        raise CoordinatorNotAvailable("it is loading")

    with monkeypatch.context() as patch:
        patch.setattr(share_starts.ShareStarts, "_here", refuse)
        assert start_after_deletion(broker) == 0
    assert start_after_deletion(broker) == 10
