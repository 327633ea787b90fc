"""Views in the image: whatever order changes come in, the image is the one that reading everything gives."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.cluster_world import ONE, image_of
from respool.cluster import keys
from respool.cluster.image_reader import ImageReader
from respool.cluster.keys import TopicRecord, ViewRecord
from respool.cluster.view_reader import stray_views
from respool.model.cluster import NO_CONTROLLER, ClusterImage
from respool.model.ids import TopicId
from respool.model.topic_config import TopicConfig
from respool.ports.metadata_store import StoredValue

NAMES = ("a", "b", "c")
IDS = [TopicId(UUID(int=one)) for one in range(1, 4)]

topic_records = st.builds(
    TopicRecord,
    id=st.sampled_from(IDS),
    overrides=st.sampled_from([{}, {"retention.ms": "7"}]),
    partition_count=st.integers(0, 2),
)
view_records = st.builds(
    TopicRecord,
    id=st.sampled_from([TopicId(UUID(int=one)) for one in range(10, 12)]),
    overrides=st.sampled_from([{}, {"respool.view.listed": "true"}, {"respool.view.listed": "?"}]),
    partition_count=st.just(0),
    view=st.builds(
        ViewRecord,
        parent_id=st.sampled_from(IDS),
        where=st.sampled_from(["tag = 'paid'", "tag resembles 'paid'"]),
    ),
)
changes = st.one_of(
    st.tuples(
        st.sampled_from([keys.topic_key(one) for one in NAMES]),
        st.one_of(st.none(), st.builds(keys.encode_topic, topic_records | view_records)),
    ),
    st.tuples(
        st.builds(keys.partition_key, st.sampled_from(IDS), st.integers(0, 1)),
        st.one_of(
            st.none(),
            st.builds(
                keys.encode_partition, st.sampled_from([image_of(1, 2), image_of(1, 2, isr=[2])])
            ),
        ),
    ),
    st.tuples(
        st.just(keys.broker_config_key("")),
        st.sampled_from([None, keys.encode_overrides({"log.retention.ms": "77"})]),
    ),
)


# Where every history begins, so that most changes concern something.
A_TOPIC_AND_A_VIEW: list[tuple[str, bytes | None]] = [
    (
        keys.topic_key("a"),
        keys.encode_topic(TopicRecord(id=IDS[0], overrides={}, partition_count=1)),
    ),
    (keys.partition_key(IDS[0], 0), keys.encode_partition(image_of(1, 2))),
    (
        keys.topic_key("b"),
        keys.encode_topic(
            TopicRecord(
                id=TopicId(UUID(int=10)),
                overrides={},
                partition_count=0,
                view=ViewRecord(parent_id=IDS[0], where="tag = 'paid'"),
            )
        ),
    ),
]


def has_names_for_one_topic_each(values: dict[str, StoredValue]) -> bool:
    """Ids are unique in every store; a topic's record has one name."""
    ids = [
        keys.decode_topic(one.value).id
        for key, one in values.items()
        if key in keys.topic_keys([key])
    ]
    return len(ids) == len(set(ids))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(changes, min_size=1, max_size=3), max_size=12))
def test_reading_change_by_change_gives_the_image_that_reading_everything_gives(
    writes: list[list[tuple[str, bytes | None]]],
) -> None:
    reader = ImageReader(me=None, defaults=TopicConfig())
    image = ClusterImage(cluster_id="", brokers={}, controller=NO_CONTROLLER)
    values: dict[str, StoredValue] = {}
    for revision, write in enumerate([A_TOPIC_AND_A_VIEW, *writes], start=1):
        after = dict(values)
        for key, value in write:
            if value is None:
                after.pop(key, None)
            else:
                after[key] = StoredValue(value=value, revision=revision)
        if not has_names_for_one_topic_each(after):
            continue
        values = after
        image = reader.read(values, frozenset(key for key, _ in write), image, revision=revision)
        whole = ImageReader(me=None, defaults=TopicConfig())
        assert image == whole.read_all(values, revision=revision)
        assert set(reader.incomplete) == set(whole.incomplete)
        check_views(image)


def check_views(image: ClusterImage) -> None:
    assert image.views_by_id == {one.id: one for one in image.views.values()}
    assert image.topics.keys().isdisjoint(image.views)
    assert image.views.keys().isdisjoint(image.dormant_views)
    for one in image.views.values():
        assert one.view is not None
        parent = image.topics_by_id[one.view.parent_id]
        assert one.view.parent == one.log_name == parent.name
        assert one.partitions is parent.partitions
        assert one.config is parent.config
    for dormant in image.dormant_views.values():
        assert dormant.is_orphan == (dormant.parent_id not in image.topics_by_id)


def test_a_view_whose_parent_is_not_complete_yet_is_no_stray() -> None:
    """Changes of a write arrive one by one."""
    topic = TopicRecord(id=IDS[0], overrides={}, partition_count=1)
    view = TopicRecord(
        id=IDS[1],
        overrides={},
        partition_count=0,
        view=ViewRecord(parent_id=IDS[0], where="tag = 'paid'"),
    )
    reader = ImageReader(me=None, defaults=TopicConfig())
    values = {
        keys.topic_key("rides"): StoredValue(value=keys.encode_topic(topic), revision=1),
        keys.topic_key("paid"): StoredValue(value=keys.encode_topic(view), revision=2),
    }
    image = reader.read_all(values)
    assert image.dormant_views["paid"].is_orphan
    assert stray_views(image, reader.incomplete) == {}
    assert stray_views(image, ()) == {keys.topic_key("paid"): 2}
    partition = keys.partition_key(IDS[0], 0)
    values[partition] = StoredValue(value=keys.encode_partition(image_of(ONE)), revision=3)
    image = reader.read(values, frozenset([partition]), image, revision=3)
    assert image.views.keys() == {"paid"}


def test_a_topic_that_takes_over_a_views_name_is_no_view() -> None:
    """Both changes may be seen at once, after the store was not reachable; readers would get the old view's records."""
    reader = ImageReader(me=None, defaults=TopicConfig())
    values = {
        key: StoredValue(value=value, revision=1)
        for key, value in A_TOPIC_AND_A_VIEW
        if value is not None
    }
    before = reader.read_all(values)
    assert before.views.keys() == {"b"}
    name = keys.topic_key("b")
    values[name] = StoredValue(
        value=keys.encode_topic(TopicRecord(id=IDS[1], overrides={}, partition_count=0)), revision=2
    )
    after = reader.read(values, frozenset([name]), before, revision=2)
    assert after.topics.keys() == {"a", "b"}
    assert after.views == {}
    assert after.readable("b") is after.topics["b"]


def test_what_no_change_affects_stays_the_same_object() -> None:
    """Views of untouched topics are not made again with every change of the cluster."""
    view = TopicRecord(
        id=IDS[1],
        overrides={},
        partition_count=0,
        view=ViewRecord(parent_id=IDS[0], where="tag = 'paid'"),
    )
    values = {
        keys.topic_key("rides"): StoredValue(
            value=keys.encode_topic(TopicRecord(id=IDS[0], overrides={}, partition_count=0)),
            revision=1,
        ),
        keys.topic_key("paid"): StoredValue(value=keys.encode_topic(view), revision=1),
    }
    reader = ImageReader(me=None, defaults=TopicConfig())
    before = reader.read_all(values)
    other = keys.topic_key("fares")
    values[other] = StoredValue(
        value=keys.encode_topic(TopicRecord(id=IDS[2], overrides={}, partition_count=0)), revision=2
    )
    after = reader.read(values, frozenset([other]), before, revision=2)
    assert after.views["paid"] is before.views["paid"]


def test_a_change_that_concerns_no_view_leaves_the_views_as_they_are() -> None:
    """Comparing ten thousand views took a tenth of a second, for each change of a leader elsewhere."""
    parent, other = (
        TopicRecord(id=one, overrides={}, partition_count=1) for one in (IDS[0], IDS[1])
    )
    view = TopicRecord(
        id=IDS[2],
        overrides={},
        partition_count=0,
        view=ViewRecord(parent_id=IDS[0], where="tag = 'paid'"),
    )
    records = {"a": parent, "b": other, "c": view}
    values = {
        keys.topic_key(name): StoredValue(value=keys.encode_topic(one), revision=1)
        for name, one in records.items()
    } | {
        keys.partition_key(one, 0): StoredValue(
            value=keys.encode_partition(image_of(1, 2)), revision=1
        )
        for one in (IDS[0], IDS[1])
    }
    reader = ImageReader(me=None, defaults=TopicConfig())
    before = reader.read_all(values)
    assert before.views.keys() == {"c"}

    def after_change_of(topic_id: TopicId) -> ClusterImage:
        key = keys.partition_key(topic_id, 0)
        moved = StoredValue(value=keys.encode_partition(image_of(1, 2, isr=[2])), revision=2)
        return reader.read(values | {key: moved}, frozenset({key}), before, revision=2)

    assert after_change_of(IDS[1]).views is before.views
    assert after_change_of(IDS[0]).views["c"].partitions[0].isr == (2,)
