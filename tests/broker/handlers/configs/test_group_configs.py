"""A group's configuration: changed by both APIs, kept, and told to the members of next-generation groups."""

from typing import Any

import pytest

from broker.handlers.configs.test_alter_configs import (
    APPEND,
    DELETE,
    INVALID_CONFIG,
    INVALID_REQUEST,
    ask,
    both_in_every_version,
    resource,
)
from broker.running_broker import RunningBroker
from respool.wire.api_table import Api

GROUP = 32
INTERVAL, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"


def stored(broker: RunningBroker) -> Any:
    return {name: one.values for name, one in broker.broker.image.stored_group_overrides.items()}


@both_in_every_version
def test_a_groups_configuration_is_kept(
    running_broker: RunningBroker, api: Api, version: int
) -> None:
    change = resource(GROUP, "riders", (SESSION, "50000"), (INTERVAL, "6000"))

    assert ask(running_broker, api, version, change, validate_only=True) == [0]
    assert stored(running_broker) == {}

    assert ask(running_broker, api, version, change) == [0]
    running_broker.restart(crash=True)
    assert stored(running_broker) == {"riders": {SESSION: "50000", INTERVAL: "6000"}}


@both_in_every_version
@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("riders", (SESSION, "1"), INVALID_CONFIG),
        ("riders", (SESSION, "soon"), INVALID_CONFIG),
        ("riders", (SESSION, None), INVALID_REQUEST),
        ("riders", ("share.session.timeout.ms", "44999"), INVALID_CONFIG),
        ("riders", ("streams.num.standby.replicas", "1"), INVALID_CONFIG),
        ("riders", ("no.such", "1"), INVALID_CONFIG),
        ("", (SESSION, "50000"), INVALID_REQUEST),
    ],
)
def test_what_cannot_be_changes_nothing(
    running_broker: RunningBroker,
    *,
    api: Api,
    version: int,
    name: str,
    change: tuple[str, str | None],
    code: int,
) -> None:
    assert ask(running_broker, api, version, resource(GROUP, name, change)) == [code]
    assert stored(running_broker) == {}


def test_single_settings_are_set_and_unset(running_broker: RunningBroker) -> None:
    def change(*changes: Any) -> int:
        wanted = resource(GROUP, "riders", *changes)
        (code,) = ask(running_broker, Api.INCREMENTAL_ALTER_CONFIGS, 1, wanted)
        return code

    assert change((SESSION, "50000")) == 0
    assert change((INTERVAL, "6000")) == 0
    assert stored(running_broker) == {"riders": {SESSION: "50000", INTERVAL: "6000"}}
    assert change((SESSION, "1", APPEND)) == INVALID_CONFIG
    assert change((SESSION, None, DELETE)) == 0
    assert stored(running_broker) == {"riders": {INTERVAL: "6000"}}
    assert change((INTERVAL, None, DELETE), (SESSION, None, DELETE)) == 0
    assert stored(running_broker) == {}


def test_a_member_is_told_the_heartbeat_interval_of_its_group(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides")

    def join(group_id: str) -> Any:
        running_broker.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group_id])
        while True:
            reply = running_broker.ask(
                Api.CONSUMER_GROUP_HEARTBEAT,
                0,
                group_id=group_id,
                member_id="m",
                member_epoch=0,
                rebalance_timeout=30_000,
                subscribed_topic_names=["rides"],
                topic_partitions=[],
            )
            if not reply.error_code:
                return reply

    def interval_ms(group_id: str) -> int:
        return int(join(group_id).heartbeat_interval.total_seconds() * 1000)

    assert interval_ms("riders") == 5_000
    running_broker.set_for_group("riders", {INTERVAL: "6000"})
    assert interval_ms("riders") == 6_000
    assert interval_ms("others") == 5_000
