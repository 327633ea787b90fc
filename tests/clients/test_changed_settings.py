"""Settings of a running broker, changed and described by stock admin clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonType

from support.broker_process import BrokerProcess
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("changed-settings")]

TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def python_admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    yield client
    client.close()


def change(admin: AdminClient, name: str, **settings: str | None) -> None:
    """Set a broker's settings, `_` for `.`; None unsets one."""
    entries = [
        ConfigEntry(
            setting.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE
            if value is None
            else AlterConfigOpType.SET,
        )
        for setting, value in settings.items()
    ]
    wanted = ConfigResource(ResourceType.BROKER, name, incremental_configs=entries)
    admin.incremental_alter_configs([wanted])[wanted].result(TIMEOUT_S)


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, Any]:
    wanted = ConfigResource(kind, name)
    found: dict[str, Any] = admin.describe_configs([wanted])[wanted].result(TIMEOUT_S)
    return found


def test_confluent_kafka_changes_defaults_that_last_over_a_restart(
    topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.new("changed")
    change(topics.admin, "1", log_retention_ms="5000", message_max_bytes="2000")
    broker.stop()
    broker.start()
    of_topic = described(topics.admin, ResourceType.TOPIC, topic)
    assert (of_topic["retention.ms"].value, of_topic["max.message.bytes"].value) == ("5000", "2000")
    of_broker = described(topics.admin, ResourceType.BROKER, "1")
    entry = of_broker["log.retention.ms"]
    assert entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    assert not entry.is_read_only
    assert of_broker["num.partitions"].is_read_only
    change(topics.admin, "1", log_retention_ms=None, message_max_bytes=None)
    of_topic = described(topics.admin, ResourceType.TOPIC, topic)
    assert of_topic["retention.ms"].value == "604800000"
    assert of_topic["retention.ms"].is_default


def test_confluent_kafka_is_told_what_cannot_be_changed(topics: Topics) -> None:
    with pytest.raises(KafkaException) as caught:
        change(topics.admin, "1", num_partitions="3")
    error = caught.value.args[0]
    assert error.code() == KafkaError.INVALID_REQUEST
    assert "Cannot update these configs dynamically: [num.partitions]" in error.str()


def python_change(
    admin: KafkaAdminClient, kind: PythonType, name: str, settings: dict[str, str]
) -> str:
    """What the client says of the change; it looks up first whether there are such settings."""
    answer = admin.alter_configs([PythonResource(kind, name, settings)])
    return str(answer[kind.name.lower()][name])


def python_described(admin: KafkaAdminClient, kind: PythonType, name: str) -> dict[str, Any]:
    found = admin.describe_configs([PythonResource(kind, name)], config_filter="all")
    ((_, by_name),) = found.items()
    return dict(by_name[name])


def test_kafka_python_changes_a_default_of_topics(python_admin: KafkaAdminClient) -> None:
    setting = "log.retention.hours"

    def hours() -> object:
        return python_described(python_admin, PythonType.BROKER, "1")[setting]["value"]

    assert python_change(python_admin, PythonType.BROKER, "1", {setting: "6"}) == "OK"
    assert hours() == "6"
    python_admin.reset_configs([PythonResource(PythonType.BROKER, "1", [setting])])
    assert hours() == "168"


def test_kafka_python_changes_a_groups_settings(python_admin: KafkaAdminClient) -> None:
    setting = "consumer.session.timeout.ms"
    assert python_change(python_admin, PythonType.GROUP, "riders", {setting: "50000"}) == "OK"
    of_group = python_described(python_admin, PythonType.GROUP, "riders")
    assert of_group[setting]["value"] == "50000"
    assert python_admin.list_config_resources()["group"] == ["riders"]
    refused = python_change(python_admin, PythonType.GROUP, "riders", {setting: "1"})
    assert "outside 45000 to 60000" in refused


def test_kafka_python_changes_the_level_of_a_logger(
    python_admin: KafkaAdminClient, broker: BrokerProcess
) -> None:
    kind, logger = PythonType.BROKER_LOGGER, "respool.broker.admin_log"

    def configure(group: str) -> None:
        settings = {"consumer.heartbeat.interval.ms": "6000"}
        assert python_change(python_admin, PythonType.GROUP, group, settings) == "OK"

    before = python_described(python_admin, kind, "1")
    assert before[logger]["value"] == before["root"]["value"] == "INFO"
    configure("heard")
    assert python_change(python_admin, kind, "1", {logger: "ERROR"}) == "OK"
    assert python_described(python_admin, kind, "1")[logger]["value"] == "ERROR"
    # It acts at once: what is changed now is not in the admin log; the audit log has it.
    configure("unheard")
    lines = [line for line in broker.log.splitlines() if f" {logger}: " in line]
    assert any("group 'heard'" in line for line in lines)
    assert not any("group 'unheard'" in line for line in lines)
    assert "not a supported log level" in python_change(python_admin, kind, "1", {logger: "LOUD"})
