"""The topics of a group: what is created, and what is reported at the start."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType

import respool
from client.messages.retry.story import RetryStory
from respool.client.messages.errors import BrokerUnreachable, RetryTopicMissing
from respool.client.messages.retry import retry_topics
from respool.client.messages.retry.retry_options import Retry
from respool.client.messages.retry.retry_topics import _Preparation, connection_settings
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-retry-topics")]

DAY_MS = 86_400_000


class Answer:
    def __init__(self, found: object) -> None:
        self._found = found

    def result(self) -> object:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


class Described:
    def __init__(self, rights: set[AclOperation] | None, partitions: int = 3) -> None:
        self.authorized_operations = rights
        self.partitions = [None] * partitions


class Entry:
    def __init__(self, value: str) -> None:
        self.value = value


class Admin:
    """A cluster as its administration sees it."""

    def __init__(self) -> None:
        self.rights: set[AclOperation] | None = {AclOperation.READ, AclOperation.WRITE}
        self.topics: dict[str, dict[str, str]] = {"rides": {"max.message.bytes": "2000000"}}
        self.create_fails: Exception | None = None
        self.configs_fail: Exception | None = None

    def describe_topics(self, asked: Any, **_: object) -> dict[str, Answer]:
        unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return {
            topic: Answer(Described(self.rights) if topic in self.topics else unknown)
            for topic in asked.topic_names
        }

    def create_topics(self, new: Any, **_: object) -> dict[str, Answer]:
        answers = {}
        for one in new:
            if self.create_fails is None:
                self.topics[one.topic] = dict(one.config)
            answers[one.topic] = Answer(self.create_fails)
        return answers

    def describe_configs(self, asked: Any, **_: object) -> dict[Any, Answer]:
        (resource,) = asked
        found = {name: Entry(value) for name, value in self.topics[resource.name].items()}
        return {resource: Answer(self.configs_fail or found)}


def failing(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def prepare(admin: Admin, **options: Any) -> retry_topics.RetryTopics:
    return _Preparation(admin, group="billing", retry=Retry(**options), sources={"rides": 3}).run()


def test_missing_topics_are_created_with_delays_and_their_retention() -> None:
    admin = Admin()
    made = prepare(admin)
    assert admin.topics["retry.billing"]["respool.delay"] == "true"
    assert admin.topics["retry.billing"]["retention.ms"] == str(14 * DAY_MS)
    assert admin.topics["dlq.billing"]["retention.ms"] == str(30 * DAY_MS)
    assert made.partitions == {"retry.billing": 3, "dlq.billing": 3}
    # A message as large as the source takes, and the headers of its failure.
    assert made.limits.retry_bytes_max == 2_000_000 + 16 * 1024


def test_without_dead_letters_there_is_no_topic_for_them() -> None:
    admin = Admin()
    prepare(admin, dead_letters=False)
    assert set(admin.topics) == {"rides", "retry.billing"}


def test_topics_that_are_there_stay_as_they_are() -> None:
    admin = Admin()
    admin.topics |= {"retry.billing": {"respool.delay": "true"}, "dlq.billing": {}}
    admin.create_fails = failing(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert prepare(admin).limits.retry_bytes_max == 1_048_588
    assert admin.topics["dlq.billing"] == {}


def test_another_member_may_be_faster() -> None:
    admin = Admin()

    def create(new: Any, **_: object) -> dict[str, Answer]:
        admin.topics |= {"retry.billing": {"respool.delay": "true"}, "dlq.billing": {}}
        exists = failing(KafkaError.TOPIC_ALREADY_EXISTS)
        return {one.topic: Answer(exists) for one in new}

    admin.create_topics = create  # type: ignore[method-assign]
    assert set(prepare(admin).partitions) == {"retry.billing", "dlq.billing"}


def test_without_the_right_create_the_missing_topic_and_its_command_are_named() -> None:
    admin = Admin()
    admin.create_fails = failing(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RetryTopicMissing) as raised:
        prepare(admin)
    assert "is missing, and cannot be created" in str(raised.value)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(raised.value)
    assert "respool topic create " in str(raised.value)


def test_without_the_right_write_it_fails_at_the_start() -> None:
    admin = Admin()
    admin.rights = {AclOperation.READ}
    with pytest.raises(RetryTopicMissing, match="does not have the permission Write"):
        prepare(admin)


@pytest.mark.parametrize("rights", [None, set(), {AclOperation.ALL}])
def test_a_broker_that_does_not_say_which_rights_there_are_is_believed(
    rights: set[AclOperation] | None,
) -> None:
    admin = Admin()
    admin.rights = rights
    prepare(admin)


def test_without_the_right_to_see_settings_it_fails_at_the_start() -> None:
    admin = Admin()
    admin.topics |= {"retry.billing": {"respool.delay": "true"}, "dlq.billing": {}}
    admin.configs_fail = failing(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RetryTopicMissing, match="DescribeConfigs"):
        prepare(admin)


def test_a_retry_topic_without_delays_is_refused_with_the_command() -> None:
    admin = Admin()
    admin.topics["retry.billing"] = {"respool.delay": "false"}
    command = (
        "respool topic create retry.billing --partitions 3 --set respool.delay=true"
        f" --set retention.ms={14 * DAY_MS}"
    )
    with pytest.raises(RetryTopicMissing, match=r"has not respool.delay=true") as raised:
        prepare(admin)
    assert command in str(raised.value)


def test_a_delay_beyond_what_the_topic_allows_is_refused_at_the_start() -> None:
    admin = Admin()
    admin.topics["retry.billing"] = {"respool.delay": "true", "respool.delay.max.ms": "60000"}
    with pytest.raises(RetryTopicMissing, match=r"delays by 1m at most .* not by 1h"):
        prepare(admin)
    prepare(admin, delays=("1m",))


def test_connection_settings_are_those_that_reach_the_brokers() -> None:
    settings: dict[str, object] = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.password": "p",
        "ssl.ca.location": "ca.pem",
        "ssl_key": "k",
        "client.id": "billing",
        "socket.nagle.disable": True,
        "group.id": "g",
        "fetch.min.bytes": 1,
        "enable.auto.commit": False,
        "max.poll.interval.ms": 1,
    }
    assert set(connection_settings(settings)) == {
        "bootstrap.servers",
        "security.protocol",
        "sasl.password",
        "ssl.ca.location",
        "ssl_key",
        "client.id",
        "socket.nagle.disable",
    }


# -- with a broker


def test_both_topics_have_as_many_partitions_as_the_largest_source(
    story: RetryStory, retry_broker_topics: Topics
) -> None:
    many = retry_broker_topics.new("many", partitions=4)
    with respool.Consumer([story.topic, many], **story.arguments()):
        pass
    admin = story.topics.admin
    for topic in (story.retry_topic, story.letters_topic):
        assert len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 4
    resource = ConfigResource(ResourceType.TOPIC, story.retry_topic)
    configs = admin.describe_configs([resource])[resource].result(60)
    assert configs["respool.delay"].value == "true"
    assert configs["retention.ms"].value == str(14 * DAY_MS)


def test_a_plain_topic_of_that_name_is_refused(story: RetryStory) -> None:
    story.topics.create(story.retry_topic)
    with pytest.raises(RetryTopicMissing, match=r"respool.delay=true"):
        story.consumer()


def test_without_a_broker_that_is_what_is_reported() -> None:
    with pytest.raises(BrokerUnreachable):
        respool.Consumer("rides", group="g", bootstrap="127.0.0.1:1", retry=respool.Retry())
