"""The source's options: read as Spark's Kafka connector does, and refused where they cannot be."""

import pickle

import pytest

from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest
from respool.spark.option_values import BadOption, Options
from respool.spark.source.source_options import NAMES, Kind, SourceOptions
from respool.spark.source.start_points import Point

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "rides"}


def read(kind: Kind | None = "batch", **more: str) -> SourceOptions:
    given = BASE | {name.replace("__", "."): value for name, value in more.items()}
    return SourceOptions.of(Options(given), kind)


class Watched(Options):
    """Remembers which names were asked for."""

    def __init__(self) -> None:
        super().__init__(BASE)
        self.asked: set[str] = set()

    def has(self, name: str) -> bool:
        self.asked.add(name)
        return super().has(name)


def test_every_name_that_is_known_is_read() -> None:
    options = Watched()
    SourceOptions.of(options, "batch")
    assert options.asked == set(NAMES)


def test_defaults_are_those_of_sparks_connector_but_for_isolation() -> None:
    batch, stream = read(), read("stream")
    assert batch.start == Point(option="startingOffsets", everywhere=Earliest())
    assert stream.start == Point(option="startingOffsets", everywhere=Latest())
    assert batch.end == Point(option="endingOffsets", everywhere=Latest())
    assert batch.fail_on_data_loss
    assert batch.isolation == "read_committed"
    assert not batch.include_headers
    assert stream.max_delay_ms == 900_000
    assert stream.group == "spark-respool-rides"


def test_exactly_one_way_says_which_topics_are_read() -> None:
    assert read(subscribe="a, b,a").wanted.names == ("a", "b")
    with pytest.raises(BadOption, match="subscribe and subscribePattern are both given"):
        read(subscribePattern="r.*")
    with pytest.raises(BadOption, match="none is given"):
        SourceOptions.of(Options({"kafka.bootstrap.servers": "a:1"}))
    with pytest.raises(BadOption, match="subscribe = ','"):
        read(subscribe=",")


def test_partitions_can_be_assigned() -> None:
    given = {"bootstrap": "a:1", "assign": '{"rides": [1, 0], "fares": [2]}'}
    wanted = SourceOptions.of(Options(given), "batch").wanted
    assert wanted.assigned == {"rides": (0, 1), "fares": (2,)}
    assert wanted.names == ("rides", "fares")
    for wrong in ("[]", "{}", '{"rides": 0}', '{"rides": []}', '{"rides": [-1]}', "rides"):
        with pytest.raises(BadOption, match="assign"):
            SourceOptions.of(Options(given | {"assign": wrong}), "batch")


def test_a_pattern_is_one_of_javas_for_whole_names() -> None:
    given = {"bootstrap": "a:1", "subscribePattern": r"\Qri.\E(?<rest>des)+"}
    wanted = SourceOptions.of(Options(given), "batch").wanted
    assert wanted.has("ri.des")
    assert not wanted.has("ri.des-2")
    assert wanted.names is None


def test_times_come_before_times_of_partitions_and_those_before_offsets() -> None:
    offsets, times = '{"rides": {"0": 5}}', '{"rides": {"0": 1700}}'
    some = read(startingOffsets=offsets, startingOffsetsByTimestamp=times)
    every = read(
        startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="1800"
    )
    assert read(startingOffsets=offsets).start == Point(
        option="startingOffsets", by={"rides": {0: AtOffset(5)}}
    )
    assert some.start == Point(option="startingOffsetsByTimestamp", by={"rides": {0: AtTime(1700)}})
    assert every.start == Point(option="startingTimestamp", everywhere=AtTime(1800))


def test_the_ends_of_the_log_are_numbers_among_offsets() -> None:
    point = read(startingOffsets='{"rides": {"0": -2, "1": 7}}', endingOffsets="latest").start
    assert [point.target("rides", number) for number in (0, 1)] == [Earliest(), AtOffset(7)]
    assert point.has_offsets
    assert read().end.target("rides", 5) == Latest()


@pytest.mark.parametrize(
    ("kind", "more", "named"),
    [
        ("stream", {"endingOffsets": "latest"}, "endingOffsets"),
        ("stream", {"endingTimestamp": "1"}, "endingTimestamp"),
        ("batch", {"startingOffsets": "latest"}, "startingOffsets"),
        ("batch", {"startingOffsets": '{"rides": {"0": -1}}'}, "startingOffsets"),
        ("batch", {"endingOffsets": "earliest"}, "endingOffsets"),
        ("batch", {"endingOffsets": '{"rides": {"0": -2}}'}, "endingOffsets"),
        ("batch", {"startingOffsets": "first"}, "startingOffsets"),
        ("batch", {"startingOffsets": '{"rides": {"0": -3}}'}, "startingOffsets"),
        ("batch", {"startingOffsets": '{"rides": {"x": 3}}'}, "startingOffsets"),
        ("batch", {"startingOffsets": '{"rides": 3}'}, "startingOffsets"),
        ("batch", {"startingOffsets": "{"}, "startingOffsets"),
        ("batch", {"startingTimestamp": "the day before"}, "startingTimestamp"),
        ("batch", {"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampSt"),
        ("stream", {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        (
            "stream",
            {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "minOffsetsPerTrigger = 6 contradicts maxOffsetsPerTrigger",
        ),
        ("stream", {"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
        ("stream", {"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger"),
        ("batch", {"minPartitions": "0"}, "minPartitions"),
        ("batch", {"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ("batch", {"kafka__isolation__level": "serializable"}, "kafka.isolation.level"),
        (
            "batch",
            {"isolation": "read_committed", "kafka__isolation__level": "read_uncommitted"},
            "contradict",
        ),
        ("batch", {"kafka__group__id": ""}, "kafka.group.id"),
        ("batch", {"kafka__auto__offset__reset": "earliest"}, "kafka.auto.offset.reset"),
        ("batch", {"kafka__ssl__key__password": "x"}, "kafka.ssl.key.password"),
        ("batch", {"subscribee": "x"}, "did you mean 'subscribe'"),
        ("batch", {"kafka__isolation__levle": "x"}, "did you mean 'kafka.isolation.level'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(kind: Kind, more: dict[str, str], named: str) -> None:
    with pytest.raises(BadOption, match=named):
        read(kind, **more)


def test_a_mistake_in_a_name_is_told_before_what_it_leaves_missing() -> None:
    given = {"kafka.bootstrap.server": "a:1", "subscribe": "rides"}
    with pytest.raises(BadOption, match=r"did you mean 'kafka\.bootstrap\.servers'"):
        SourceOptions.of(Options(given))


def test_a_group_has_the_name_that_was_given_or_none() -> None:
    assert read(kafka__group__id="mine", groupIdPrefix="x").group == "mine"
    assert read(groupIdPrefix="x").group == "x-rides"
    assert read(commitOffsets="false").group is None


def test_settings_of_kafkas_clients_pass() -> None:
    read(kafka__max__poll__records="5", kafka__acks="all", kafka__client__rack="r1")


def test_options_can_be_sent_to_other_processes() -> None:
    given = {"bootstrap": "a:1", "subscribePattern": "r.*"}
    options = SourceOptions.of(Options(given), "stream")
    assert pickle.loads(pickle.dumps(options)) == options
