"""Views over the admin APIs: created, shown, changed and deleted like topics, by any admin client."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.broker.handlers.support.rights import VIEW_OPERATIONS
from respool.model.cluster import TopicImage
from respool.model.security.acl import TOPIC_OPERATIONS
from respool.wire.api_table import Api

UNKNOWN_TOPIC = 3
TOPIC_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
POLICY_VIOLATION = 44
TOPIC = 2
SET, DELETE, APPEND = 0, 1, 2
DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5

OF, WHERE, LISTED = "respool.view.of", "respool.view.where", "respool.view.listed"
PAID = {OF: "rides", WHERE: "tag='paid'"}


@pytest.fixture
def broker(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides", partitions=3)
    return running_broker


def asked(name: str, settings: dict[str, str], **fields: Any) -> dict[str, Any]:
    configs = [{"name": key, "value": text} for key, text in settings.items()]
    defaults = {"num_partitions": -1, "replication_factor": -1, "assignments": ()}
    return {"name": name, **defaults, "configs": configs, **fields}


def create(
    broker: RunningBroker, *topics: Any, version: int = 7, validate_only: bool = False
) -> Any:
    return broker.ask(
        Api.CREATE_TOPICS, version, topics=topics, timeout=1000, validate_only=validate_only
    ).topics


def delete(broker: RunningBroker, *names: str) -> list[int]:
    topics = [{"name": name, "topic_id": None} for name in names]
    reply = broker.ask(Api.DELETE_TOPICS, 6, topics=topics, timeout=1000)
    return [one.error_code for one in reply.responses]


def metadata(broker: RunningBroker, *names: str, auto_create: bool = False) -> Any:
    reply = broker.ask(
        Api.METADATA,
        12,
        topics=[{"name": name, "topic_id": None} for name in names] or None,
        allow_auto_topic_creation=auto_create,
        include_topic_authorized_operations=True,
    )
    return {one.name: one for one in reply.topics}


def configs(broker: RunningBroker, name: str) -> dict[str, Any]:
    resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    reply = broker.ask(
        Api.DESCRIBE_CONFIGS,
        4,
        resources=[resource],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = reply.results
    assert result.error_code == 0
    return {one.name: one for one in result.configs}


def alter(broker: RunningBroker, name: str, *changes: tuple[str, str | None, int]) -> Any:
    resource = {
        "resource_type": TOPIC,
        "resource_name": name,
        "configs": [
            {"name": key, "value": text, "config_operation": operation}
            for key, text, operation in changes
        ],
    }
    reply = broker.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    return reply.responses[0]


def view(broker: RunningBroker, name: str = "paid") -> TopicImage:
    return broker.broker.image.views[name]


@pytest.mark.parametrize("version", versions(Api.CREATE_TOPICS))
def test_any_admin_client_creates_a_view(broker: RunningBroker, version: int) -> None:
    numbers = {} if version >= 4 else {"num_partitions": 3, "replication_factor": 1}
    (result,) = create(broker, asked("paid", PAID, **numbers), version=version)

    assert (result.error_code, result.error_message) == (0, None)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert {one.name: one.value for one in result.configs} == {
            OF: "rides",
            WHERE: "tag = 'paid'",
            LISTED: "false",
        }
    if version >= 7:
        assert result.topic_id == view(broker).id
    assert broker.broker.image.topics.keys() == {"rides"}


def test_a_view_is_there_after_a_restart(broker: RunningBroker) -> None:
    create(broker, asked("paid", PAID))
    before = view(broker)
    broker.restart(crash=True)
    after = view(broker)
    assert (after.id, after.view, len(after.partitions)) == (before.id, before.view, 3)


def test_a_topic_and_its_view_are_created_in_one_request(running_broker: RunningBroker) -> None:
    results = create(running_broker, asked("paid", PAID), asked("rides", {}, num_partitions=2))
    assert [(one.name, one.error_code) for one in results] == [("paid", 0), ("rides", 0)]
    assert len(view(running_broker).partitions) == 2


def test_validate_only_creates_nothing(broker: RunningBroker) -> None:
    good, bad = create(
        broker, asked("paid", PAID), asked("open", {**PAID, WHERE: "tag"}), validate_only=True
    )
    assert (good.error_code, good.num_partitions) == (0, 3)
    assert bad.error_code == INVALID_CONFIG
    assert broker.broker.image.views == {}


@pytest.mark.parametrize(
    ("settings", "fields", "code", "reason"),
    [
        ({OF: "fares"}, {}, INVALID_CONFIG, "there is no topic 'fares'"),
        ({OF: "__consumer_offsets"}, {}, INVALID_CONFIG, "respool.view.of"),
        ({OF: "other"}, {}, INVALID_CONFIG, "'other' is a view of 'rides'"),
        ({WHERE: "tag = "}, {}, INVALID_CONFIG, "respool.view.where: position 7"),
        ({"retention.ms": "1"}, {}, INVALID_CONFIG, "retention.ms is a setting of topics"),
        ({}, {"num_partitions": 2}, INVALID_PARTITIONS, "3 as 'rides', not 2"),
        ({}, {"replication_factor": 2}, INVALID_REPLICATION_FACTOR, "1 as 'rides', not 2"),
        (
            {},
            {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
            INVALID_REPLICA_ASSIGNMENT,
            "no replicas of its own",
        ),
        ({}, {"name": "rides"}, TOPIC_EXISTS, "there is a topic 'rides' already"),
        ({OF: "new"}, {"name": "new"}, INVALID_CONFIG, "cannot be a view of itself"),
        ({}, {"name": "other"}, TOPIC_EXISTS, "there is a view 'other' already"),
        ({}, {"name": "fines"}, TOPIC_EXISTS, "there is a topic 'fines' already"),
    ],
)
def test_a_view_that_cannot_be_is_refused_with_the_reason(
    broker: RunningBroker,
    settings: dict[str, str],
    fields: dict[str, Any],
    code: int,
    reason: str,
) -> None:
    broker.create_topic("fines")
    broker.create_view("other", of="rides", where="tag = 'other'")
    wanted = {**asked("paid", {**PAID, **settings}), **fields}
    (result,) = create(broker, wanted)
    assert result.error_code == code
    assert reason in result.error_message
    assert broker.broker.image.views.keys() == {"other"}


def test_a_topic_does_not_get_a_views_name(broker: RunningBroker) -> None:
    create(broker, asked("paid", PAID))
    (result,) = create(broker, asked("paid", {}))
    assert (result.error_code, result.error_message) == (
        TOPIC_EXISTS,
        "there is a view 'paid' already, of topic 'rides'",
    )


def test_a_named_view_is_shown_as_a_topic_with_its_parents_leaders(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    shown = metadata(broker, "rides", "paid")
    parent, paid = shown["rides"], shown["paid"]
    assert paid.error_code == 0
    assert paid.topic_id == view(broker).id != parent.topic_id
    assert paid.partitions == parent.partitions
    assert {one.leader_id for one in paid.partitions} == {broker.broker.id}
    assert parent.topic_authorized_operations == TOPIC_OPERATIONS
    assert paid.topic_authorized_operations == VIEW_OPERATIONS

    reply = broker.ask(
        Api.METADATA,
        12,
        topics=[{"name": None, "topic_id": paid.topic_id}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    assert [one.name for one in reply.topics] == ["paid"]


def test_a_view_whose_parent_is_offline_has_no_leader(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    broker.take_offline("rides", 1)
    shown = metadata(broker, "rides", "paid")
    assert shown["paid"].partitions == shown["rides"].partitions
    assert shown["paid"].partitions[1].leader_id == -1


def test_all_topics_are_shown_without_views_unless_they_are_listed(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    broker.create_view("open", of="rides", where="tag = 'open'", listed=True)
    assert metadata(broker).keys() == {"rides", "open"}
    every = {"topics": [], "response_partition_limit": 100, "cursor": None}
    reply = broker.ask(Api.DESCRIBE_TOPIC_PARTITIONS, 0, **every)
    assert [one.name for one in reply.topics] == ["open", "rides"]

    assert alter(broker, "paid", (LISTED, "true", SET)).error_code == 0
    assert alter(broker, "open", (LISTED, None, DELETE)).error_code == 0
    assert metadata(broker).keys() == {"rides", "paid"}


def test_pages_of_a_view_have_its_parents_partitions(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    fields = {"topics": [{"name": "paid"}], "response_partition_limit": 2, "cursor": None}
    first = broker.ask(Api.DESCRIBE_TOPIC_PARTITIONS, 0, **fields)
    cursor = {
        "topic_name": first.next_cursor.topic_name,
        "partition_index": first.next_cursor.partition_index,
    }
    second = broker.ask(Api.DESCRIBE_TOPIC_PARTITIONS, 0, **{**fields, "cursor": cursor})
    found = [one for page in (first, second) for topic in page.topics for one in topic.partitions]
    assert [one.partition_index for one in found] == [0, 1, 2]
    assert second.topics[0].topic_id == view(broker).id


def test_every_view_is_a_config_resource(broker: RunningBroker) -> None:
    """So tools find those that are not listed."""
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    reply = broker.ask(Api.LIST_CONFIG_RESOURCES, 1, resource_types=[TOPIC])
    assert [one.resource_name for one in reply.config_resources] == ["rides", "paid"]


def test_a_view_is_not_auto_created_as_a_topic(start_broker: StartBroker) -> None:
    broker = start_broker(auto_create_topics=True)
    broker.create_topic("rides", partitions=3)
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    shown = metadata(broker, "paid", auto_create=True)["paid"]
    assert (shown.error_code, len(shown.partitions)) == (0, 3)
    assert broker.broker.image.topics.keys() == {"rides"}

    # Another broker has created the view, and this one has not heard of it when it is asked.
    async def shadow() -> tuple[TopicImage, bool]:
        return await broker.broker.topics.create_if_missing("paid", on_created=lambda _: None)

    assert broker.run(shadow()) == (view(broker), False)


def test_a_deleted_view_is_not_auto_created_at_once(start_broker: StartBroker) -> None:
    broker = start_broker(auto_create_topics=True)
    broker.create_topic("rides")
    for name in ("paid", "open"):
        broker.create_view(name, of="rides", where=f"tag = '{name}'")
    assert delete(broker, "paid") == [0]
    assert metadata(broker, "paid", auto_create=True)["paid"].error_code == UNKNOWN_TOPIC
    assert delete(broker, "rides") == [0]
    # It went with its parent.
    assert metadata(broker, "open", auto_create=True)["open"].error_code == UNKNOWN_TOPIC
    assert broker.broker.image.topics == {}


def test_a_view_has_its_own_settings_and_none_of_topics(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag='paid'")
    shown = configs(broker, "paid")
    assert {name: one.value for name, one in shown.items()} == {
        LISTED: "false",
        OF: "rides",
        WHERE: "tag = 'paid'",
    }
    assert [name for name, one in shown.items() if one.read_only] == [OF]
    assert shown[WHERE].config_source == DYNAMIC_TOPIC_CONFIG
    assert shown[LISTED].config_source == DEFAULT_CONFIG
    assert all(one.documentation for one in shown.values())
    assert OF not in configs(broker, "rides")


def test_a_views_condition_can_be_changed(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    before = view(broker)
    assert alter(broker, "paid", (WHERE, "tag in ('paid','free')", SET)).error_code == 0
    assert configs(broker, "paid")[WHERE].value == "tag in ('free', 'paid')"
    assert view(broker).id == before.id
    broker.restart()
    assert configs(broker, "paid")[WHERE].value == "tag in ('free', 'paid')"


def test_settings_are_replaced_and_the_parent_stays(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'", listed=True)
    resource = {
        "resource_type": TOPIC,
        "resource_name": "paid",
        "configs": [{"name": WHERE, "value": "tag = 'free'"}],
    }
    reply = broker.ask(Api.ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert reply.responses[0].error_code == 0
    assert {name: one.value for name, one in configs(broker, "paid").items()} == {
        LISTED: "false",
        OF: "rides",
        WHERE: "tag = 'free'",
    }


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("paid", (WHERE, "tag = ", SET), "position 7"),
        ("paid", (WHERE, None, DELETE), "respool.view.where is missing"),
        ("paid", (WHERE, "tag = 'a'", APPEND), "is not a list"),
        ("paid", (OF, "fares", SET), "create another view for 'fares'"),
        ("paid", ("retention.ms", "1", SET), "retention.ms is a setting of topics"),
        ("rides", (WHERE, "tag = 'a'", SET), "is a setting of views, and 'rides' is a topic"),
        ("rides", (LISTED, "true", SET), "is a setting of views, and 'rides' is a topic"),
    ],
)
def test_a_change_that_cannot_be_changes_nothing(
    broker: RunningBroker, name: str, change: tuple[str, str | None, int], reason: str
) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    before = broker.broker.image
    result = alter(broker, name, change)
    assert result.error_code == INVALID_CONFIG
    assert reason in result.error_message
    assert (broker.broker.image.topics, broker.broker.image.views) == (before.topics, before.views)


def test_a_deleted_view_leaves_its_parent_and_another_gets_another_id(
    broker: RunningBroker,
) -> None:
    first = broker.create_view("paid", of="rides", where="tag = 'paid'")
    broker.produce("rides")
    assert delete(broker, "paid") == [0]
    assert metadata(broker, "paid")["paid"].error_code == UNKNOWN_TOPIC
    assert broker.offset("rides", at=-1) == 1
    second = broker.create_view("paid", of="rides", where="tag = 'paid'")
    assert first.id != second.id


def test_a_view_is_deleted_by_its_id(broker: RunningBroker) -> None:
    made = broker.create_view("paid", of="rides", where="tag = 'paid'")
    topics = [{"name": None, "topic_id": made.id}]
    reply = broker.ask(Api.DELETE_TOPICS, 6, topics=topics, timeout=1000)
    assert [(one.name, one.error_code) for one in reply.responses] == [("paid", 0)]
    assert broker.broker.image.topics.keys() == {"rides"}


@pytest.mark.parametrize("names", [("rides",), ("rides", "paid"), ("paid", "rides")])
def test_views_go_with_their_parent(broker: RunningBroker, names: tuple[str, ...]) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    broker.create_view("open", of="rides", where="tag = 'open'")
    assert delete(broker, *names) == [0] * len(names)
    assert broker.broker.image.topics == broker.broker.image.views == {}
    broker.create_topic("rides")
    broker.restart()
    assert broker.broker.image.views == {}


def test_a_view_follows_its_parents_growth(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    grown = {"name": "rides", "count": 5, "assignments": None}
    reply = broker.ask(Api.CREATE_PARTITIONS, 3, topics=[grown], timeout=1000, validate_only=False)
    assert reply.results[0].error_code == 0
    assert len(metadata(broker, "paid")["paid"].partitions) == 5


def test_what_only_a_topic_has_is_refused_and_names_the_parent(broker: RunningBroker) -> None:
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    grown = {"name": "paid", "count": 5, "assignments": None}
    reply = broker.ask(Api.CREATE_PARTITIONS, 3, topics=[grown], timeout=1000, validate_only=False)
    results = [(reply.results[0].error_code, reply.results[0].error_message)]
    moved = {"name": "paid", "partitions": [{"partition_index": 0, "replicas": [1]}]}
    reply = broker.ask(Api.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[moved], timeout=1000)
    results += [(one.error_code, one.error_message) for one in reply.responses[0].partitions]
    elected = {"topic": "paid", "partitions": [0]}
    reply = broker.ask(
        Api.ELECT_LEADERS, 2, election_type=0, topic_partitions=[elected], timeout=1000
    )
    results += [
        (one.error_code, one.error_message)
        for one in reply.replica_election_results[0].partition_result
    ]
    described = {"name": "paid", "partition_indexes": [0]}
    reply = broker.ask(Api.DESCRIBE_PRODUCERS, 0, topics=[described])
    results += [(one.error_code, one.error_message) for one in reply.topics[0].partitions]
    assert len(results) == 4
    for code, message in results:
        assert code == POLICY_VIOLATION
        assert message.startswith("'paid' is a view of 'rides': ")
        assert message.endswith(" 'rides' instead")


def test_an_auto_created_parent_stays_once_it_has_a_view(start_broker: StartBroker) -> None:
    """A producer whose first message is too large has its topic deleted again, if nobody uses it."""
    broker = start_broker(auto_create_topics=True)
    metadata(broker, "rides", auto_create=True)
    assert len(broker.broker.auto_created) == 1
    create(broker, asked("paid", PAID))
    assert len(broker.broker.auto_created) == 0


def test_what_is_done_to_views_is_in_the_admin_log(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    create(broker, asked("paid", PAID))
    delete(broker, "paid")
    assert "created view 'paid': respool.view.of='rides'" in caplog.text
    assert "deleted view 'paid'" in caplog.text
