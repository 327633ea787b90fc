"""Views are created under their parent's guard, keep their parent, and end with it."""

from uuid import UUID

import pytest

from cluster.cluster_world import ONE, THREE, TWO, ClusterWorld
from respool.cluster import keys
from respool.cluster.controller_decisions import decide
from respool.cluster.guarded_write import GuardedWrite, merged
from respool.cluster.keys import TopicRecord, ViewRecord
from respool.cluster.topic_requests import (
    configure_topic,
    create_topic,
    delete_topic,
    grow_topic,
)
from respool.cluster.view_requests import VIEWS_MAX, configure_view, create_view, delete_view
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    PolicyViolation,
    RequestError,
    TopicAlreadyExists,
)
from respool.model.ids import TopicId
from respool.model.view_config import LISTED, OF, WHERE, ViewConfig

ID = TopicId(UUID(int=77))
PAID = {OF: "rides", WHERE: "tag = 'paid'"}


@pytest.fixture
def cluster() -> ClusterWorld:
    world = ClusterWorld(dict.fromkeys((ONE, TWO, THREE)))
    world.create("rides", partitions=3, factor=2, overrides={})
    return world


def create(
    cluster: ClusterWorld,
    name: str = "paid",
    *,
    of: str = "rides",
    count: int = -1,
    factor: int = -1,
) -> list[GuardedWrite]:
    return create_view(
        cluster.view(),
        name,
        topic_id=ID,
        config=ViewConfig.parse({**PAID, OF: of}),
        partition_count=count,
        replication_factor=factor,
    )


def image(cluster: ClusterWorld) -> ClusterImage:
    return cluster.view().image


def view(cluster: ClusterWorld, name: str = "paid") -> TopicImage:
    return image(cluster).views[name]


def test_a_view_has_its_parents_partitions_and_an_id_of_its_own(cluster: ClusterWorld) -> None:
    cluster.apply(create(cluster))
    parent = image(cluster).topics["rides"]
    assert view(cluster).id == ID
    assert view(cluster).partitions is parent.partitions
    assert view(cluster).config is parent.config
    assert image(cluster).views_by_id == {ID: view(cluster)}
    assert decide(cluster.view()) == []


def test_a_view_is_in_no_count_of_topics_or_partitions(cluster: ClusterWorld) -> None:
    before = list(cluster.view().partitions())
    cluster.apply(create(cluster))
    assert list(cluster.view().partitions()) == before
    assert cluster.view().topics.keys() == {"rides"}


def test_a_view_follows_its_parents_growth_and_leaders(cluster: ClusterWorld) -> None:
    cluster.apply(create(cluster))
    cluster.apply(grow_topic(cluster.view(), "rides", partition_count=5))
    assert len(view(cluster).partitions) == 5
    leader = view(cluster).partitions[0].leader
    assert leader is not None
    cluster.die(leader)
    cluster.decide()
    assert view(cluster).partitions == image(cluster).topics["rides"].partitions
    assert view(cluster).partitions[0].leader != leader


def test_a_view_is_not_created_for_a_parent_that_is_deleted_meanwhile(
    cluster: ClusterWorld,
) -> None:
    writes = create(cluster)
    cluster.apply(delete_topic(cluster.view(), "rides"))
    cluster.create("rides", partitions=1, factor=1, overrides={})
    cluster.apply_what_holds(writes)
    assert image(cluster).views == {}


@pytest.mark.parametrize(
    ("parent", "reason"),
    [
        ("fares", "there is no topic 'fares'"),
        ("paid", "'paid' cannot be a view of itself"),
        ("unpaid", "'unpaid' is a view of 'rides'; create the view of 'rides' instead"),
        ("__consumer_offsets", "'__consumer_offsets' belongs to the broker"),
    ],
)
def test_not_every_topic_can_have_views(cluster: ClusterWorld, parent: str, reason: str) -> None:
    cluster.create("__consumer_offsets", partitions=1, factor=1, overrides={})
    cluster.apply(create(cluster, "unpaid"))
    with pytest.raises(InvalidConfig) as refused:
        create(cluster, of=parent)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("count", "factor", "error"),
    [
        (2, -1, InvalidPartitions),
        (0, -1, InvalidPartitions),
        (-1, 3, InvalidReplicationFactor),
    ],
)
def test_a_views_numbers_are_its_parents(
    cluster: ClusterWorld, count: int, factor: int, error: type[RequestError]
) -> None:
    with pytest.raises(error, match="its parent's"):
        create(cluster, count=count, factor=factor)
    cluster.apply(create(cluster, count=3, factor=2))
    assert len(view(cluster).partitions) == 3


def test_topics_and_views_have_their_names_apart(cluster: ClusterWorld) -> None:
    cluster.apply(create(cluster))
    with pytest.raises(
        TopicAlreadyExists, match="there is a view 'paid' already, of topic 'rides'"
    ):
        create_topic(
            cluster.view(),
            "paid",
            topic_id=ID,
            overrides={},
            partition_count=1,
            replication_factor=1,
        )
    with pytest.raises(TopicAlreadyExists, match="there is a view 'paid' already"):
        create(cluster)
    cluster.create("fares", partitions=1, factor=1, overrides={})
    with pytest.raises(TopicAlreadyExists, match="there is a topic 'fares' already"):
        create(cluster, "fares")
    with pytest.raises(InvalidTopic):
        create(cluster, "rides?tag=paid")


def test_there_are_not_more_views_than_the_limit(
    cluster: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.cluster.view_requests.VIEWS_MAX", 1)
    assert VIEWS_MAX > 1
    cluster.apply(create(cluster))
    with pytest.raises(PolicyViolation, match="there are 1 views"):
        create(cluster, "unpaid")


def test_a_changed_condition_keeps_the_id(cluster: ClusterWorld) -> None:
    cluster.apply(create(cluster))
    before = view(cluster)
    changed = {**PAID, WHERE: "tag = 'open'", LISTED: "true"}
    cluster.apply(configure_view(cluster.view(), before, changed))
    after = view(cluster)
    assert (after.id, after.is_listed) == (before.id, True)
    assert after.view is not None
    assert str(after.view.where) == "tag = 'open'"
    # It was decided on what is not any more.
    cluster.apply_what_holds(configure_view(cluster.view(), before, PAID))
    assert view(cluster) == after


def test_a_view_keeps_its_parent(cluster: ClusterWorld) -> None:
    cluster.create("fares", partitions=1, factor=1, overrides={})
    cluster.apply(create(cluster))
    with pytest.raises(InvalidConfig, match="create another view for 'fares'"):
        configure_view(cluster.view(), view(cluster), {**PAID, OF: "fares"})


def test_settings_of_a_newer_version_stay_and_block_no_change(cluster: ClusterWorld) -> None:
    foreign = {"respool.view.newer": "1"}
    cluster.apply(create(cluster))
    record = keys.decode_topic(cluster.values[keys.topic_key("paid")].value)
    cluster.put(
        keys.topic_key("paid"),
        keys.encode_topic(
            TopicRecord(id=record.id, overrides=foreign, partition_count=0, view=record.view)
        ),
    )
    cluster.apply(
        configure_view(cluster.view(), view(cluster), {**PAID, **foreign, LISTED: "true"})
    )
    assert view(cluster).overrides == {**foreign, LISTED: "true"}
    with pytest.raises(InvalidConfig, match=r"Unknown view config name: respool\.view\.newer"):
        configure_view(cluster.view(), view(cluster), {**PAID, "respool.view.newer": "2"})


def test_a_deleted_view_leaves_its_parent(cluster: ClusterWorld) -> None:
    cluster.apply(create(cluster))
    cluster.apply(delete_view(cluster.view(), view(cluster)))
    assert image(cluster).views == {}
    assert len(image(cluster).topics["rides"].partitions) == 3


@pytest.mark.parametrize("count", [1, 120])
def test_views_end_with_their_parent_however_many(cluster: ClusterWorld, count: int) -> None:
    for number in range(count):
        cluster.apply(
            create_view(
                cluster.view(),
                f"v{number}",
                topic_id=TopicId(UUID(int=1000 + number)),
                config=ViewConfig.parse(PAID),
            )
        )
    writes = delete_topic(cluster.view(), "rides")
    cluster.apply(writes[:1])
    assert image(cluster).topics == image(cluster).views == {}
    cluster.apply(writes[1:])
    assert not keys.topic_keys(cluster.values)


def test_a_topic_created_again_has_no_views(cluster: ClusterWorld) -> None:
    cluster.apply(create(cluster))
    cluster.apply(delete_topic(cluster.view(), "rides"))
    cluster.create("rides", partitions=1, factor=1, overrides={})
    assert image(cluster).views == {}
    assert image(cluster).dormant_views == {}


def test_a_view_created_while_its_parent_is_deleted_is_collected(cluster: ClusterWorld) -> None:
    deletion = delete_topic(cluster.view(), "rides")
    cluster.apply(create(cluster))
    cluster.apply(deletion)
    assert image(cluster).views == {}
    assert image(cluster).dormant_views["paid"].is_orphan
    cluster.decide()
    assert not keys.topic_keys(cluster.values)


def test_the_name_of_a_view_whose_parent_is_gone_is_free(cluster: ClusterWorld) -> None:
    deletion = delete_topic(cluster.view(), "rides")
    cluster.apply(create(cluster))
    cluster.apply(deletion)
    cluster.create("paid", partitions=1, factor=1, overrides={})
    assert image(cluster).topics.keys() == {"paid"}
    assert image(cluster).dormant_views == {}


def test_a_condition_of_a_newer_version_is_neither_served_nor_lost(cluster: ClusterWorld) -> None:
    parent = image(cluster).topics["rides"].id
    record = TopicRecord(
        id=ID,
        overrides={},
        partition_count=0,
        view=ViewRecord(parent_id=parent, where="tag resembles 'paid'"),
    )
    cluster.put(keys.topic_key("paid"), keys.encode_topic(record))
    assert image(cluster).readable("paid") is None
    with pytest.raises(TopicAlreadyExists, match="made by a newer version"):
        create(cluster)
    assert decide(cluster.view()) == []
    # It goes with its parent all the same.
    cluster.apply(delete_topic(cluster.view(), "rides"))
    cluster.decide()
    assert not keys.topic_keys(cluster.values)


def test_what_only_a_topic_has_is_changed_there(cluster: ClusterWorld) -> None:
    cluster.apply(create(cluster))
    why = "'paid' is a view of 'rides': change 'rides'"
    with pytest.raises(PolicyViolation, match=why):
        grow_topic(cluster.view(), "paid", partition_count=9)
    with pytest.raises(PolicyViolation, match=why):
        configure_topic(cluster.view(), "paid", overrides={})


def test_a_topic_and_its_view_may_be_deleted_in_one_write(cluster: ClusterWorld) -> None:
    cluster.apply(create(cluster))
    cluster_view = cluster.view()
    decisions = {
        "paid": delete_view(cluster_view, view(cluster))[0],
        "rides": delete_topic(cluster_view, "rides")[0],
    }
    ((names, write),) = merged(decisions, operations_max=None)
    assert names == ["paid", "rides"]
    # etcd refuses a write that names a key twice.
    assert len(set(write.deletes)) == len(write.deletes)
    cluster.apply([write])
    assert not keys.topic_keys(cluster.values)


def test_an_older_version_takes_a_view_for_a_topic_without_partitions(
    cluster: ClusterWorld,
) -> None:
    cluster.apply(create(cluster))
    stored = cluster.values[keys.topic_key("paid")].value
    # What versions without views read of it.
    assert b'"partitions":0' in stored
    assert b'"overrides":{}' in stored
