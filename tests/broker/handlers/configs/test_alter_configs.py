"""AlterConfigs and IncrementalAlterConfigs, in every version: a resource is changed as a whole or not at all."""

import re
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.model.throttled_replicas import TEXT_LENGTH_MAX
from respool.model.topic_config import Flush
from respool.wire.api_table import Api

UNKNOWN_TOPIC = 3
INVALID_CONFIG = 40
INVALID_REQUEST = 42

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)

BOTH = (Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS)
both_in_every_version = pytest.mark.parametrize(
    ("api", "version"), [(api, version) for api in BOTH for version in versions(api)]
)
every_version = pytest.mark.parametrize("version", versions(Api.ALTER_CONFIGS))
every_incremental_version = pytest.mark.parametrize(
    "version", versions(Api.INCREMENTAL_ALTER_CONFIGS)
)

RATE = "leader.replication.throttled.rate"

Change = tuple[str, str | None] | tuple[str, str | None, int]


def resource(kind: int, name: str, *changes: Change) -> dict[str, Any]:
    """Each change: a setting, its value, and for the incremental API what to do (set it, if not said)."""
    configs = [
        {"name": one[0], "value": one[1], "config_operation": one[2] if len(one) > 2 else SET}
        for one in changes
    ]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def ask(
    broker: RunningBroker, api: Api, version: int, *resources: Any, validate_only: bool = False
) -> list[int]:
    """Ask for the changes and return the error codes."""
    if api is Api.ALTER_CONFIGS:
        resources = tuple(
            {
                **one,
                "configs": [
                    {k: v for k, v in c.items() if k != "config_operation"} for c in one["configs"]
                ],
            }
            for one in resources
        )
    reply = broker.ask(api, version, resources=resources, validate_only=validate_only)
    assert [(one.resource_type, one.resource_name) for one in reply.responses] == [
        (one["resource_type"], one["resource_name"]) for one in resources
    ]
    assert all(bool(one.error_message) == bool(one.error_code) for one in reply.responses)
    return [int(one.error_code) for one in reply.responses]


def overrides(broker: RunningBroker, topic: str = "rides") -> dict[str, str]:
    return dict(broker.broker.image.topics[topic].overrides)


@both_in_every_version
def test_a_setting_takes_effect_at_once_and_stays(
    running_broker: RunningBroker, api: Api, version: int
) -> None:
    running_broker.create_topic("rides", partitions=2)

    assert ask(
        running_broker, api, version, resource(TOPIC, "rides", ("retention.ms", "1000"))
    ) == [0]

    for number in range(2):
        assert running_broker.broker.partitions.find("rides", number).config.retention_ms == 1000
    running_broker.restart(crash=True)
    assert overrides(running_broker) == {"retention.ms": "1000"}
    assert running_broker.broker.partitions.find("rides", 0).config.retention_ms == 1000


@both_in_every_version
def test_validate_only_changes_nothing(
    running_broker: RunningBroker, api: Api, version: int
) -> None:
    running_broker.create_topic("rides", segment_bytes="4096")

    codes = ask(
        running_broker,
        api,
        version,
        resource(TOPIC, "rides", ("retention.ms", "1000")),
        resource(TOPIC, "nobody", ("retention.ms", "1000")),
        validate_only=True,
    )

    assert codes == [0, UNKNOWN_TOPIC]
    assert overrides(running_broker) == {"segment.bytes": "4096"}


@both_in_every_version
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", "1000"), ("segment.bytes", "many")], INVALID_CONFIG),
        ([("retention.ms", "1000"), ("no.such", "1")], INVALID_CONFIG),
        ([("retention.ms", "1000"), ("segment.bytes", None)], INVALID_REQUEST),
        ([("retention.ms", "1000"), ("retention.ms", "2000")], INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_one_bad_setting_keeps_the_whole_topic_as_it_was(
    running_broker: RunningBroker,
    *,
    api: Api,
    version: int,
    changes: list[Change],
    code: int,
    validate_only: bool,
) -> None:
    running_broker.create_topic("rides", segment_bytes="4096")
    wanted = resource(TOPIC, "rides", *changes)

    assert ask(running_broker, api, version, wanted, validate_only=validate_only) == [code]

    assert overrides(running_broker) == {"segment.bytes": "4096"}


@both_in_every_version
def test_each_resource_is_answered_for_in_the_order_of_the_request(
    running_broker: RunningBroker, api: Api, version: int
) -> None:
    running_broker.create_topic("rides")
    change = ("retention.ms", "1000")

    codes = ask(
        running_broker,
        api,
        version,
        resource(TOPIC, "nobody", change),
        resource(LOGGER, "1", change),
        resource(77, "rides", change),
        resource(TOPIC, "rides", change),
    )

    assert codes == [UNKNOWN_TOPIC, INVALID_REQUEST, INVALID_REQUEST, 0]


@both_in_every_version
def test_a_resource_named_twice_is_not_changed(
    running_broker: RunningBroker, api: Api, version: int
) -> None:
    running_broker.create_topic("rides")

    codes = ask(
        running_broker,
        api,
        version,
        resource(TOPIC, "rides", ("retention.ms", "1000")),
        resource(TOPIC, "rides", ("segment.bytes", "4096")),
    )

    assert codes == [INVALID_REQUEST, INVALID_REQUEST]
    assert overrides(running_broker) == {}


@both_in_every_version
@pytest.mark.parametrize("name", ["1", "", "2", "one"])
def test_what_a_broker_reads_when_it_starts_cannot_be_changed_from_outside(
    running_broker: RunningBroker, api: Api, version: int, name: str
) -> None:
    before = running_broker.broker.settings

    codes = ask(running_broker, api, version, resource(BROKER, name, ("num.partitions", "9")))

    assert codes == [INVALID_REQUEST]
    assert running_broker.broker.settings == before


@both_in_every_version
@pytest.mark.parametrize("name", ["1", ""])
def test_what_a_broker_lets_be_changed_while_it_runs_holds_at_once_and_stays(
    running_broker: RunningBroker, api: Api, version: int, name: str
) -> None:
    change = resource(BROKER, name, (RATE, "1000"))

    assert ask(running_broker, api, version, change, validate_only=True) == [0]
    assert running_broker.broker.image.broker_overrides == {}

    assert ask(running_broker, api, version, change) == [0]
    assert running_broker.broker.image.broker_overrides == {name: {RATE: "1000"}}
    running_broker.restart(crash=True)
    assert running_broker.broker.image.broker_overrides == {name: {RATE: "1000"}}


@both_in_every_version
@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("1", (RATE, "fast"), INVALID_CONFIG),
        ("1", (RATE, None), INVALID_REQUEST),
        ("2", (RATE, "1000"), INVALID_REQUEST),
    ],
)
def test_a_broker_is_not_given_what_cannot_be(
    running_broker: RunningBroker, *, api: Api, version: int, name: str, change: Change, code: int
) -> None:
    assert ask(running_broker, api, version, resource(BROKER, name, change)) == [code]
    assert running_broker.broker.image.broker_overrides == {}


@every_incremental_version
def test_a_throttle_is_lifted_whether_there_was_one_or_not(
    running_broker: RunningBroker, version: int
) -> None:
    """As Kafka's tool for moving partitions does it, when all are moved."""
    incremental = Api.INCREMENTAL_ALTER_CONFIGS
    unset = resource(BROKER, "1", (RATE, None, DELETE))
    assert ask(running_broker, incremental, version, unset) == [0]
    assert ask(running_broker, incremental, version, resource(BROKER, "1", (RATE, "9"))) == [0]
    added = resource(BROKER, "1", (RATE, "9", APPEND))
    assert ask(running_broker, incremental, version, added) == [INVALID_CONFIG]
    assert running_broker.broker.image.broker_overrides == {"1": {RATE: "9"}}
    assert ask(running_broker, incremental, version, unset) == [0]
    assert running_broker.broker.image.broker_overrides == {}


@every_version
def test_alter_configs_unsets_what_it_does_not_name(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides", segment_bytes="4096")

    ask(running_broker, Api.ALTER_CONFIGS, version, resource(TOPIC, "rides", ("retention.ms", "1")))
    assert overrides(running_broker) == {"retention.ms": "1"}

    ask(running_broker, Api.ALTER_CONFIGS, version, resource(TOPIC, "rides"))
    assert overrides(running_broker) == {}


def incremental(broker: RunningBroker, version: int, *changes: Change) -> int:
    (code,) = ask(
        broker, Api.INCREMENTAL_ALTER_CONFIGS, version, resource(TOPIC, "rides", *changes)
    )
    return code


@every_incremental_version
def test_incremental_changes_leave_the_others_alone(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides", segment_bytes="4096", segment_ms="99")

    changes: list[Change] = [("retention.ms", "1000"), ("segment.ms", None, DELETE)]
    assert incremental(running_broker, version, *changes) == 0

    assert overrides(running_broker) == {"segment.bytes": "4096", "retention.ms": "1000"}


@every_incremental_version
def test_a_setting_that_is_not_set_can_be_unset(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(topic={"retention.ms": "5000"})
    broker.create_topic("rides", retention_ms="1000")

    changes: list[Change] = [("retention.ms", None, DELETE), ("segment.ms", "ignored", DELETE)]
    assert incremental(broker, version, *changes) == 0

    assert broker.broker.partitions.find("rides", 0).config.retention_ms == 5000


@every_incremental_version
def test_lists_are_added_to_and_taken_from(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides")

    assert incremental(running_broker, version, ("cleanup.policy", "delete", APPEND)) == 0
    assert overrides(running_broker) == {"cleanup.policy": "delete"}
    assert incremental(running_broker, version, ("cleanup.policy", "compact", SUBTRACT)) == 0
    assert overrides(running_broker) == {"cleanup.policy": "delete"}
    # What is left may be nothing: then all records are kept.
    assert incremental(running_broker, version, ("cleanup.policy", "delete", SUBTRACT)) == 0
    assert overrides(running_broker) == {"cleanup.policy": ""}
    assert not running_broker.broker.partitions.find("rides", 0).config.has_retention
    assert incremental(running_broker, version, ("cleanup.policy", "", APPEND)) == 0
    assert incremental(running_broker, version, ("cleanup.policy", "compact", APPEND)) == 0
    assert overrides(running_broker) == {"cleanup.policy": "compact"}
    # What is left must be a value that can be.
    assert incremental(running_broker, version, ("cleanup.policy", "x", APPEND)) == INVALID_CONFIG
    assert overrides(running_broker) == {"cleanup.policy": "compact"}


@every_incremental_version
def test_lists_of_throttled_replicas_are_added_to_and_taken_from(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides")
    name = "leader.replication.throttled.replicas"

    assert incremental(running_broker, version, (name, "0:1, 0:2", APPEND)) == 0
    assert incremental(running_broker, version, (name, "0:1,1:1", APPEND)) == 0
    assert incremental(running_broker, version, (name, "0:2,9:9", SUBTRACT)) == 0
    assert overrides(running_broker) == {name: "0:1,1:1"}
    assert incremental(running_broker, version, (name, "*", APPEND)) == INVALID_CONFIG
    assert incremental(running_broker, version, (name, "0:1,1:1", SUBTRACT)) == 0
    assert overrides(running_broker) == {name: ""}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_no_more_is_added_or_taken_than_fits(running_broker: RunningBroker, operation: int) -> None:
    running_broker.create_topic("rides")
    change = ("leader.replication.throttled.replicas", "0:1," * TEXT_LENGTH_MAX, operation)
    assert incremental(running_broker, 1, change) == INVALID_CONFIG


@every_incremental_version
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "compression.type", "no.such"])
def test_what_is_no_list_is_not_added_to(
    running_broker: RunningBroker, version: int, operation: int, name: str
) -> None:
    running_broker.create_topic("rides")

    assert incremental(running_broker, version, (name, "1", operation)) == INVALID_CONFIG

    assert overrides(running_broker) == {}


@every_incremental_version
def test_an_operation_that_does_not_exist_is_refused(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides")

    assert incremental(running_broker, version, ("retention.ms", "1", 9)) == INVALID_REQUEST

    assert overrides(running_broker) == {}


# Settings, values, and the reason why they are refused.
NOT_DONE = [
    (("remote.storage.enable", "true"), "remote.storage.enable = true needs an archive"),
    (
        ("remote.copy.lag.ms", "0"),
        "remote.copy.lag.ms is refused: local segments are never removed",
    ),
    (("preallocate", "true"), "preallocate: true is refused"),
    (("flush.messages", "1000"), "flush.messages: 1000 is refused"),
    (("no.such", "1"), "^Unknown topic config name: no.such$"),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("api", BOTH)
@pytest.mark.parametrize(("change", "words"), NOT_DONE)
def test_a_setting_that_respool_cannot_do_is_refused_with_the_reason(
    running_broker: RunningBroker,
    api: Api,
    change: tuple[str, str],
    words: str,
    *,
    validate_only: bool,
) -> None:
    running_broker.create_topic("rides", retention_ms="1000")
    wanted = resource(TOPIC, "rides", change)
    if api is Api.ALTER_CONFIGS:
        del wanted["configs"][0]["config_operation"]

    reply = running_broker.ask(api, 1, resources=[wanted], validate_only=validate_only)

    (answer,) = reply.responses
    assert answer.error_code == INVALID_CONFIG
    assert re.search(words, answer.error_message)
    assert overrides(running_broker) == {"retention.ms": "1000"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_what_is_unknown_is_called_so_and_not_a_wrong_list(
    running_broker: RunningBroker, operation: int
) -> None:
    running_broker.create_topic("rides")
    wanted = resource(TOPIC, "rides", ("cleanup.polic", "delete", operation))

    reply = running_broker.ask(
        Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[wanted], validate_only=False
    )

    (answer,) = reply.responses
    assert answer.error_code == INVALID_CONFIG
    assert answer.error_message == (
        "Unknown topic config name: cleanup.polic; did you mean cleanup.policy?"
    )


@pytest.mark.parametrize("api", BOTH)
def test_what_respool_does_anyway_is_accepted_and_stored(
    running_broker: RunningBroker, api: Api
) -> None:
    running_broker.create_topic("rides")
    changes = [
        ("remote.storage.enable", "false"),
        ("local.retention.ms", "-2"),
        ("message.downconversion.enable", "false"),
        ("preallocate", "false"),
        ("flush.messages", "9223372036854775807"),
    ]

    assert ask(running_broker, api, 1, resource(TOPIC, "rides", *changes)) == [0]

    assert overrides(running_broker) == dict(changes)


def test_a_change_that_contradicts_what_is_set_is_refused_until_that_is_unset(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", respool_flush="os")

    assert incremental(running_broker, 1, ("flush.messages", "1")) == INVALID_CONFIG
    changes: list[Change] = [("flush.messages", "1"), ("respool.flush", None, DELETE)]
    assert incremental(running_broker, 1, *changes) == 0
    config = running_broker.broker.partitions.find("rides", 0).config
    assert config.respool_flush is Flush.ALWAYS

    changes = [("flush.ms", "70"), ("flush.messages", None, DELETE)]
    assert incremental(running_broker, 1, *changes) == 0
    config = running_broker.broker.partitions.find("rides", 0).config
    assert (config.respool_flush, config.respool_flush_interval_ms) == (Flush.INTERVAL, 70)

    assert incremental(running_broker, 1, ("flush.ms", None, DELETE)) == 0
    config = running_broker.broker.partitions.find("rides", 0).config
    assert config.respool_flush is Flush.ALWAYS
