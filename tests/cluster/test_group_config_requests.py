"""Changes of a group's configuration, in the metadata store."""

from collections.abc import Mapping

import pytest

from cluster.cluster_world import ONE, ClusterWorld
from respool.cluster import keys
from respool.cluster.group_config_requests import GROUP_ID_BYTES_MAX, configure_group
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import InvalidConfig, InvalidRequest
from respool.model.group_config import GroupConfig
from respool.model.share.share_broker_settings import ShareBrokerSettings
from respool.ports.metadata_store import EntryTooLarge, check_entry_size

SESSION = "consumer.session.timeout.ms"
GROUP = "riders/of the north"


def configure(
    cluster: ClusterWorld, overrides: Mapping[str, str], group_id: str = GROUP
) -> Mapping[str, Mapping[str, str]]:
    """Change a group's configuration, and return that of all groups."""
    cluster.apply(
        configure_group(
            cluster.view(), group_id, lambda _: dict(overrides), settings=GroupSettings()
        )
    )
    stored = cluster.view().image.stored_group_overrides
    return {name: one.values for name, one in stored.items()}


def test_a_group_keeps_its_configuration_until_it_is_unset() -> None:
    cluster = ClusterWorld({ONE: None})
    assert configure(cluster, {SESSION: " 50_000"}) == {GROUP: {SESSION: "50000"}}
    assert cluster.view().image.group_configs == {
        GROUP: GroupConfig(consumer_session_timeout_ms=50_000)
    }
    assert configure(cluster, {SESSION: "60000"}, "others").keys() == {GROUP, "others"}
    assert configure(cluster, {}).keys() == {"others"}
    assert set(cluster.view().image.group_configs) == {"others"}


def test_a_change_that_changes_nothing_is_not_written() -> None:
    cluster = ClusterWorld({ONE: None})
    configure(cluster, {SESSION: "50000"})
    settings = GroupSettings()
    assert configure_group(cluster.view(), GROUP, lambda now: now, settings=settings) == []


@pytest.mark.parametrize(
    ("group_id", "overrides", "error"),
    [
        ("", {SESSION: "50000"}, InvalidRequest),
        ("x" * (GROUP_ID_BYTES_MAX + 1), {SESSION: "50000"}, InvalidRequest),
        # Few characters, many bytes.
        ("\U0001f6b2" * 255, {SESSION: "50000"}, InvalidRequest),
        (GROUP, {SESSION: "1"}, InvalidConfig),
        (GROUP, {SESSION: "50000", "no.such": "1"}, InvalidConfig),
    ],
)
def test_what_cannot_be_is_not_written(
    group_id: str, overrides: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        configure(ClusterWorld({ONE: None}), overrides, group_id)


def test_what_a_newer_version_has_set_stays_and_is_in_nobodys_way() -> None:
    cluster = ClusterWorld({ONE: None})
    theirs = {"some.new.thing": "5", SESSION: "a while"}
    cluster.put(keys.group_config_key(GROUP), keys.encode_overrides(theirs))
    assert cluster.view().image.group_configs == {GROUP: GroupConfig()}
    assert configure(cluster, theirs | {"consumer.heartbeat.interval.ms": "6000"}) == {
        GROUP: theirs | {"consumer.heartbeat.interval.ms": "6000"}
    }


def test_the_longest_group_id_fits_a_key_of_the_store() -> None:
    key = keys.group_config_key("x" * GROUP_ID_BYTES_MAX)
    check_entry_size(key, b"")
    with pytest.raises(EntryTooLarge):
        check_entry_size(key + "x", b"")


LETTERS = "errors.deadletterqueue.topic.name"
LETTERS_ENABLED = "errors.deadletterqueue.group.enable"


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("dlq.missing", "does not exist"),
        ("dlq.plain", "takes no dead letters"),
        ("__consumer_offsets", "does not begin with 'dlq.'"),
    ],
)
def test_a_topic_that_can_take_no_dead_letters_is_refused_when_it_is_set(
    topic: str, why: str
) -> None:
    cluster = ClusterWorld({ONE: None})
    cluster.create("dlq.plain", partitions=1, factor=1, overrides={})
    with pytest.raises(InvalidConfig, match=why):
        configure(cluster, {LETTERS: topic})
    assert cluster.view().image.group_configs == {}


def test_an_internal_topic_takes_no_dead_letters_whatever_the_prefix() -> None:
    cluster = ClusterWorld({ONE: None})
    any_name = ShareBrokerSettings(errors_deadletterqueue_topic_name_prefix="")
    with pytest.raises(InvalidConfig, match="is an internal topic"):
        configure_group(
            cluster.view(),
            GROUP,
            lambda _: {LETTERS: "__consumer_offsets"},
            settings=GroupSettings(),
            shares=any_name,
        )


def test_a_topic_with_its_flag_takes_dead_letters() -> None:
    cluster = ClusterWorld({ONE: None})
    cluster.create("dlq.rides", partitions=1, factor=1, overrides={LETTERS_ENABLED: "true"})
    assert configure(cluster, {LETTERS: "dlq.rides"}) == {GROUP: {LETTERS: "dlq.rides"}}


def test_missing_topic_that_brokers_create_takes_dead_letters() -> None:
    cluster = ClusterWorld({ONE: None})
    creates = ShareBrokerSettings(errors_deadletterqueue_auto_create_topics_enable=True)
    cluster.apply(
        configure_group(
            cluster.view(),
            GROUP,
            lambda _: {LETTERS: "dlq.missing"},
            settings=GroupSettings(),
            shares=creates,
        )
    )
    assert (
        cluster.view().image.group_configs[GROUP].errors_deadletterqueue_topic_name == "dlq.missing"
    )
