from respool.client.kafka.groups import GroupDescription, MemberDescription, OffsetAndMetadata
from respool.client.kafka.list_offsets import OffsetRange
from respool.operate.group_operations import PartitionLag, format_places, lags_of, total_lag

GROUP = GroupDescription(
    name="billing",
    state="Stable",
    type="classic",
    assignor="range",
    members=(
        MemberDescription(
            member_id="m-1",
            instance_id=None,
            client_id="app",
            host="10.0.0.7",
            partitions=(("rides", 0), ("rides", 2)),
        ),
    ),
    coordinator=("broker", 9092),
)


def lag(committed: int | None, held: tuple[int, int] | None) -> PartitionLag:
    return PartitionLag(
        topic="rides",
        partition=0,
        committed=committed,
        held=OffsetRange(start=held[0], end=held[1]) if held else None,
    )


def test_lag_is_what_is_there_and_not_read() -> None:
    assert lag(40, (0, 100)).lag == 60
    assert lag(100, (0, 100)).lag == 0
    # After a topic was made anew, offsets may lie beyond its end.
    assert lag(120, (0, 100)).lag == 0


def test_what_was_deleted_unread_is_lost_and_not_lag() -> None:
    assert (lag(40, (70, 100)).lag, lag(40, (70, 100)).lost) == (30, 30)
    assert lag(80, (70, 100)).lost == 0


def test_without_an_offset_or_a_leader_nobody_knows() -> None:
    assert lag(None, (0, 100)).lag is None
    assert lag(40, None).lag is None
    assert total_lag([lag(None, (0, 100)), lag(40, (0, 100))]) == 60


def test_partitions_are_those_committed_and_those_being_read() -> None:
    committed = {
        ("rides", 0): OffsetAndMetadata(offset=3, metadata="why"),
        ("fares", 1): OffsetAndMetadata(offset=9),
    }
    ranges = {("rides", 0): OffsetRange(start=0, end=5), ("rides", 2): OffsetRange(start=0, end=7)}
    found = lags_of(GROUP, committed, ranges)
    assert [(each.topic, each.partition, each.committed, each.lag) for each in found] == [
        ("fares", 1, 9, None),
        ("rides", 0, 3, 2),
        ("rides", 2, None, None),
    ]
    assert [each.owner for each in found] == [None, "app@10.0.0.7", "app@10.0.0.7"]
    assert [each.metadata for each in found] == ["", "why", ""]


def test_partitions_without_an_offset_are_shown_too() -> None:
    committed = {("rides", 0): OffsetAndMetadata(offset=3)}
    ranges = {("rides", 1): OffsetRange(start=0, end=7)}
    found = lags_of(GROUP, committed, ranges, places=[("rides", number) for number in range(4)])
    assert [(each.partition, each.committed, each.owner) for each in found] == [
        (0, 3, "app@10.0.0.7"),
        (1, None, None),
        (2, None, "app@10.0.0.7"),
        (3, None, None),
    ]
    assert found[1].lag is None


def test_places_are_spelled_by_topic() -> None:
    assert format_places([("rides", 2), ("fares", 0), ("rides", 0)]) == "fares 0  rides 0,2"


def test_the_zero_byte_that_confluent_kafka_puts_behind_a_note_is_not_shown() -> None:
    committed = {("rides", 0): OffsetAndMetadata(offset=40, metadata="by hand\0")}
    assert lags_of(GROUP, committed, {})[0].metadata == "by hand"
