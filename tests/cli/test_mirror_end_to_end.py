"""`respool mirror` between two real brokers."""

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cli.mirror_world import (
    WAIT_SECONDS,
    MirrorWorld,
    end_of,
    headers_of,
    look,
    produce,
    read,
    two_brokers,
)
from cli.running import Run
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import OffsetAndMetadata, fetch_offsets
from respool.client.kafka.metadata import Place
from respool.mirror.retry_log import StallTimeout
from respool.model.operator_errors import OperatorError
from support.waiting import wait_until

pytestmark = pytest.mark.clients
KEEP = ("--set", "retention.ms=-1")


@pytest.fixture
def world(run: Run) -> Iterator[MirrorWorld]:
    with two_brokers(run) as world:
        yield world


def test_the_copy_has_the_same_batches_at_the_same_offsets(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", "--partitions", "3", *KEEP)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(
            world.source.address,
            "rides",
            [f"{codec}-{number}" for number in range(20)],
            **{"compression.type": codec, "enable.idempotence": True},
        )
    ended = world.mirror()
    assert "created rides at the target" in ended.err
    assert world.is_same("rides", partitions=3)
    copied = headers_of(look(world.target.address, "rides"))
    assert {batch.header.codec_bits for batch in copied} == {0, 1, 2, 3, 4}
    assert {batch.header.has_producer_id for batch in copied} == {True}
    assert read(world.target.address, "rides", 100) == read(world.source.address, "rides", 100)
    # Nothing more to copy: nothing is.
    assert "0 offsets copied" in world.mirror().err
    assert [one["lag"] for one in world.status()] == [0, 0, 0]
    assert {one["state"] for one in world.status()} == {"mirror"}


def test_it_follows_what_is_written_new_topics_and_new_partitions(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    admin = AdminClient({"bootstrap.servers": world.target.address})
    mirror = world.begin_mirror("--interval", "1s", topics="rides.*|fares")
    try:
        produce(world.source.address, "rides", ["a", "b"])
        world.at_source("topic", "create", "fares", *KEEP)
        world.at_source("topic", "create", "others", *KEEP)
        world.at_source("topic", "alter", "rides", "--partitions", "2")

        def has_all() -> bool:
            listed = admin.list_topics(timeout=WAIT_SECONDS).topics.values()
            # A topic is listed before somebody leads it.
            led = {one.topic: sum(p.leader >= 0 for p in one.partitions.values()) for one in listed}
            return led == {"rides": 2, "fares": 1}

        wait_until(has_all, "topics and partitions are there", seconds=WAIT_SECONDS)
        produce(world.source.address, "fares", ["c"])
        wait_until(
            lambda: world.is_same("rides", 2) and world.is_same("fares"),
            "all is copied",
            seconds=WAIT_SECONDS,
        )
    finally:
        mirror.send_signal(signal.SIGINT)
        said, _ = mirror.communicate(timeout=WAIT_SECONDS)
    assert mirror.returncode == 0, said
    assert "stopped; the next start continues where the copies end" in said


def test_settings_that_belong_to_a_copy_are_taken_over(world: MirrorWorld) -> None:
    settings = (
        "retention.ms=12345678",
        "segment.bytes=1048576",
        "min.insync.replicas=1",
        "leader.replication.throttled.replicas=*",
    )
    world.at_source(
        "topic", "create", "rides", *(word for each in settings for word in ("--set", each))
    )
    world.mirror()
    described = json.loads(world.at_target("topic", "describe", "rides", "--json").out)["topics"][0]
    own = {one["name"]: one["value"] for one in described["settings"] if one["source"] == "topic"}
    assert own == {
        "retention.ms": "12345678",
        "segment.bytes": "1048576",
        "respool.mirror": "true",
    }


def test_transactions_are_as_they_are_at_the_source(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    producers = []
    for name in ("committed", "aborted", "open"):
        producer = Producer({"bootstrap.servers": world.source.address, "transactional.id": name})
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(3):
            producer.produce("rides", f"{name}-{number}")
            producer.flush()
        producers.append(producer)
    committed, aborted, opened = producers
    committed.commit_transaction()
    aborted.abort_transaction()
    produce(world.source.address, "rides", ["after the open one"])
    world.mirror()
    assert world.is_same("rides")
    seen = [read(side.address, "rides", 3) for side in (world.source, world.target)]
    assert [value for _, _, value, _, _ in seen[1]] == [
        b"committed-0",
        b"committed-1",
        b"committed-2",
    ]
    assert seen[0] == seen[1]
    # Promoted, the open one is aborted: its coordinator is not here, and readers go on.
    done = json.loads(
        world.run("mirror", "promote", "rides", "--to", world.target.address, "--json").out
    )
    assert [(one["topic"], one["was_mirror"], len(one["aborted"])) for one in done["topics"]] == [
        ("rides", True, 1)
    ]
    values = [value for _, _, value, _, _ in read(world.target.address, "rides", 4)]
    assert values[-1] == b"after the open one"
    assert len(values) == 4
    # The source is not concerned.
    opened.commit_transaction()
    assert len(read(world.source.address, "rides", 7)) == 7


def test_a_compacted_source_keeps_its_offsets(world: MirrorWorld) -> None:
    world.at_source(
        "topic", "create", "rides", "--set", "cleanup.policy=compact",
        "--set", "segment.ms=100", "--set", "min.cleanable.dirty.ratio=0.01",
    )  # fmt: skip
    for number in range(10):
        produce(world.source.address, "rides", [f"{number}-{each}" for each in range(9)])

    def has_gaps() -> bool:
        # Only what is no longer written to is compacted.
        produce(world.source.address, "rides", ["newer"])
        return len(look(world.source.address, "rides").batches) < 20

    wait_until(has_gaps, "the source is compacted", seconds=WAIT_SECONDS)
    world.mirror()
    source, target = (read(one.address, "rides", 1) for one in (world.source, world.target))
    # Either side may be compacted further at any time; the newest of each key stay where they are.
    newest = {key: (offset, value) for offset, key, value, _, _ in source}
    assert {key: (offset, value) for offset, key, value, _, _ in target} == newest
    assert world.status()[0]["lag"] == 0


def test_a_source_that_starts_later_has_a_copy_that_starts_there(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", "--partitions", "2", *KEEP)
    produce(
        world.source.address, "rides", [str(number) for number in range(30)], **{"linger.ms": 100}
    )
    delete_records(world.source.address, 10)
    world.mirror()
    assert world.is_same("rides", partitions=2)
    assert look(world.target.address, "rides").start == 10
    # It starts later still, also where nothing is left.
    delete_records(world.source.address, 30)
    world.mirror()
    assert look(world.target.address, "rides") == (30, 30, [])
    produce(world.source.address, "rides", ["next"])
    world.mirror()
    assert world.is_same("rides")


def test_with_keep_longer_the_copy_keeps_what_the_source_deletes(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", [str(number) for number in range(10)])
    world.mirror("--keep-longer")
    delete_records(world.source.address, 5)
    world.mirror("--keep-longer")
    assert look(world.source.address, "rides").start == 5
    assert look(world.target.address, "rides").start == 0


def test_what_the_source_deleted_before_it_was_copied_is_told(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", ["a", "b"])
    world.mirror()
    produce(world.source.address, "rides", ["c", "d", "e"])
    delete_records(world.source.address, 4)
    ended = world.mirror()
    assert "rides/0: the source deleted 2 offsets from 2 on before they were copied" in ended.err
    assert world.is_same("rides")


def test_readers_of_committed_messages_go_on_where_the_end_of_a_transaction_was_deleted(
    world: MirrorWorld,
) -> None:
    """The copy of it stayed open, and they read nothing after it."""
    world.at_source("topic", "create", "rides", *KEEP)
    settings = {"bootstrap.servers": world.source.address, "transactional.id": "biller"}
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("rides", b"charged", partition=0)
    assert producer.flush(30) == 0
    world.mirror("--keep-longer")
    producer.abort_transaction()
    produce(world.source.address, "rides", ["a", "b"])
    delete_records(world.source.address, 3)
    ended = world.mirror("--keep-longer")
    assert "1 open transaction aborted in the copy" in ended.err
    assert [one[2] for one in read(world.target.address, "rides", 1)] == [b"b"]
    producer.begin_transaction()
    producer.produce("rides", b"charged again", partition=0)
    producer.commit_transaction()
    world.mirror("--keep-longer")
    assert [one[2] for one in read(world.target.address, "rides", 2)] == [b"b", b"charged again"]


def test_a_source_that_was_made_compacted_later_is_still_followed(world: MirrorWorld) -> None:
    """Its last batch before the copy's end had lost a record, and was taken for another one."""
    world.at_source("topic", "create", "rides", *KEEP)
    # In one batch, of which the older one goes.
    world.at_source("produce", "rides", "--key-separator", ":", stdin=b"k:1\nk:2\n")
    world.mirror()
    compact = ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "segment.ms=100")
    settings = [word for one in compact for word in ("--set", one)]
    world.at_source("topic", "alter", "rides", *settings)

    def is_compacted() -> bool:
        world.at_source("produce", "rides", "--key-separator", ":", stdin=b"other:x\n")
        side = look(world.source.address, "rides")
        return headers_of(side)[0].header.record_count == 1

    wait_until(is_compacted, "the first batch lost a record", seconds=WAIT_SECONDS)
    world.mirror()
    assert end_of(world.source.address, "rides", 0) == end_of(world.target.address, "rides", 0)


def test_ordinary_producers_are_refused_until_it_is_promoted(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    world.at_source("produce", "rides", stdin=b"one\n")
    world.mirror()
    refused = world.at_target("produce", "rides", stdin=b"two\n", code=1)
    assert "respool mirror promote rides" in refused.err
    promoted = world.run("mirror", "promote", "rides", "--to", world.target.address)
    assert "rides takes producers now" in promoted.err
    world.at_target("produce", "rides", stdin=b"two\n")
    assert world.at_target("consume", "rides", "--from-beginning").out == "one\ntwo\n"
    # The mirror leaves it alone from then on.
    world.at_source("produce", "rides", stdin=b"three\n")
    ended = world.mirror(code=1)
    assert "topic rides exists at the target and is not a mirror" in ended.err
    assert look(world.target.address, "rides").end == 2
    again = world.run("mirror", "promote", "rides", "--to", world.target.address)
    assert "was not a mirror" in again.err


def test_a_mirror_at_work_lets_go_of_what_is_promoted(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", ["a"])
    world.mirror()
    mirror = world.begin_mirror()
    try:
        produce(world.source.address, "rides", ["b"])
        wait_until(lambda: world.is_same("rides"), "it is at work", seconds=WAIT_SECONDS)
        world.run("mirror", "promote", "rides", "--to", world.target.address)
        produce(world.source.address, "rides", ["c"])
        said, _ = mirror.communicate(timeout=WAIT_SECONDS)
    finally:
        mirror.kill()
        mirror.wait()
    assert mirror.returncode == 1
    assert "rides is no longer a mirror" in said
    assert "respool topic delete" not in said
    assert look(world.target.address, "rides").end == 2


def test_after_a_planned_move_the_old_source_becomes_the_copy(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", ["a", "b"])
    world.mirror()
    world.run("mirror", "promote", "rides", "--to", world.target.address)
    produce(world.target.address, "rides", ["c", "d"])
    world.at_source("topic", "alter", "rides", "--set", "respool.mirror=true")
    world.run(
        "mirror", "--from", world.target.address, "--to", world.source.address,
        "--topics", "rides", "--once",
    )  # fmt: skip
    assert world.is_same("rides")
    values = [value for _, _, value, _, _ in read(world.source.address, "rides", 4)]
    assert values == [b"a", b"b", b"c", b"d"]


def test_after_a_disaster_the_old_source_is_not_taken_for_a_copy(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", ["a", "b"])
    world.mirror()
    produce(world.source.address, "rides", ["never copied"])
    world.run("mirror", "promote", "rides", "--to", world.target.address)
    produce(world.target.address, "rides", ["instead", "of it"])
    world.at_source("topic", "alter", "rides", "--set", "respool.mirror=true")
    before = look(world.source.address, "rides")
    ended = world.run(
        "mirror", "--from", world.target.address, "--to", world.source.address,
        "--topics", "rides", "--once", code=1,
    )  # fmt: skip
    assert "rides/0 is not what the source has" in ended.err
    assert look(world.source.address, "rides") == before


def test_idempotent_producers_of_both_clusters_are_kept_apart(world: MirrorWorld) -> None:
    """Each cluster numbers its producers; taken for one of the source's, one here would lose its first messages."""
    world.at_source("topic", "create", "rides", *KEEP)
    settings = {"enable.idempotence": True}
    produce(world.source.address, "rides", ["a"], **settings)
    world.mirror()
    world.run("mirror", "promote", "rides", "--to", world.target.address)
    produce(world.target.address, "rides", ["b"], **settings)
    values = [value for _, _, value, _, _ in read(world.target.address, "rides", 2)]
    assert values == [b"a", b"b"]


def test_groups_go_on_at_the_target_where_they_were(world: MirrorWorld) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", [str(number) for number in range(10)])
    commit(world.source.address, "billing", 7)
    commit(world.source.address, "other", 3)
    world.mirror("--groups", "bill.*")
    assert committed(world.target.address, "billing") == 7
    assert committed(world.target.address, "other") < 0
    # Forward it follows; back it does not, for the group may have read on here.
    commit(world.source.address, "billing", 9)
    world.mirror("--groups", "bill.*")
    assert committed(world.target.address, "billing") == 9
    commit(world.source.address, "billing", 2)
    world.mirror("--groups", "bill.*")
    assert committed(world.target.address, "billing") == 9


def test_once_tries_again_what_could_not_be_copied_of_a_group(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", [str(number) for number in range(10)])
    commit(world.source.address, "billing", 7)
    # So many after all messages are there, so that the mirror has nothing else left to do.
    refusals = [1] * 2

    def refusing_first(cluster: Cluster, name: str) -> dict[Place, OffsetAndMetadata]:
        if not world.is_same("rides") or (refusals and refusals.pop()):
            raise OperatorError("its coordinator moves")
        return fetch_offsets(cluster, name)

    monkeypatch.setattr("respool.mirror.group_copier.fetch_offsets", refusing_first)
    said = world.mirror("--groups", "bill.*").err
    assert committed(world.target.address, "billing") == 7
    assert "groups: billing: its coordinator moves; retrying" in said
    assert "groups: recovered" in said


def test_once_ends_with_1_where_only_groups_could_not_be_copied(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", ["a"])
    commit(world.source.address, "billing", 1)

    def refusing(*_: object) -> dict[Place, OffsetAndMetadata]:
        raise OperatorError("its coordinator moves")

    def is_over(_: StallTimeout, *, waits_for_groups: bool, now_s: float) -> bool:
        del now_s
        return waits_for_groups

    monkeypatch.setattr(StallTimeout, "is_over", is_over)
    monkeypatch.setattr("respool.mirror.group_copier.fetch_offsets", refusing)
    said = world.mirror("--groups", "bill.*", code=1).err
    assert "all messages are copied, but not the offsets of all groups: billing: its" in said
    assert world.is_same("rides")


def test_a_source_that_was_made_anew_stops_the_topic_and_only_that(world: MirrorWorld) -> None:
    for name in ("rides", "fares"):
        world.at_source("topic", "create", name, *KEEP)
        produce(world.source.address, name, ["a", "b", "c"])
    world.mirror()
    before = look(world.target.address, "rides")
    world.at_source("topic", "delete", "rides", "--yes")
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", ["x"])
    produce(world.source.address, "fares", ["d"])
    shorter = world.mirror(code=1)
    assert "up to offset 3 in the copy, and up to 1 at the source" in shorter.err
    assert "respool topic delete rides" in shorter.err
    assert world.is_same("fares")
    # As long as the copy, or longer: its last batch is another one.
    produce(world.source.address, "rides", ["y", "z", "w"])
    longer = world.mirror(code=1)
    assert "rides/0 is not what the source has" in longer.err
    assert look(world.target.address, "rides") == before


def test_a_topic_that_cannot_be_made_or_grown_holds_up_no_other(run: Run) -> None:
    with two_brokers(run, partitions_max=3) as world:
        world.at_source("topic", "create", "airports", "--partitions", "5", *KEEP)
        ended = world.mirror(code=1)
        assert "airports: " in ended.err
        assert "error: 1 topic not mirrored: airports" in ended.err
        world.at_source("topic", "create", "fares", *KEEP)
        world.at_source("topic", "create", "rides", *KEEP)
        produce(world.source.address, "rides", ["a"])
        assert "not mirrored: airports" in world.mirror(code=1).err
        assert world.is_same("rides")
        world.at_source("topic", "alter", "fares", "--partitions", "4")
        produce(world.source.address, "fares", ["b"])
        world.at_source("topic", "alter", "rides", "--partitions", "2")
        assert "2 topics not mirrored: airports, fares" in world.mirror(code=1).err
        # What there is of it is copied, and the one behind it grew.
        assert world.is_same("fares")
        assert world.is_same("rides", partitions=2)


def test_a_topic_that_could_not_be_made_is_followed_when_it_can_be(run: Run) -> None:
    with two_brokers(run, partitions_max=3) as world:
        world.at_source("topic", "create", "rides", "--partitions", "2", *KEEP)
        world.at_target("topic", "create", "others", "--partitions", "2")
        mirror = world.begin_mirror("--interval", "1s", topics="rides")
        try:
            read_until(mirror, "rides: ")
            world.at_target("topic", "delete", "others", "--yes")
            produce(world.source.address, "rides", ["a"])
            read_until(mirror, "created rides at the target")
            wait_until(lambda: world.is_same("rides", 2), "it is copied", seconds=WAIT_SECONDS)
        finally:
            mirror.send_signal(signal.SIGINT)
            rest, _ = mirror.communicate(timeout=WAIT_SECONDS)
    assert mirror.returncode == 0, rest
    assert "rides: recovered" in rest


def test_a_copy_is_copied_like_anything_else(world: MirrorWorld, run: Run) -> None:
    world.at_source("topic", "create", "rides", *KEEP)
    produce(world.source.address, "rides", ["a", "b", "c"])
    delete_records(world.source.address, 1)
    world.mirror()
    with two_brokers(run) as second:
        ended = second.run(
            "mirror", "--from", world.target.address, "--to", second.target.address,
            "--topics", ".*", "--once",
        )  # fmt: skip
        assert "created rides" in ended.err
        assert look(second.target.address, "rides") == look(world.source.address, "rides")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--to", "x:1", "--topics", "a"), 2, "--from is missing"),
        (("--from", "x:1", "--topics", "a"), 2, "--to is missing"),
        (("--from", "x:1", "--to", "y:1"), 2, "--topics is missing"),
        (("--from", "x:1", "--to", "x:1", "--topics", "a"), 2, "the same"),
        (("--from", "x:1", "--to", "y:1", "--topics", "("), 2, "not a regular expression"),
        (("--from", "x:1", "--to", "y:1", "--topics", "a", "--interval", "soon"), 2, "--interval"),
        (
            ("--from", "x:1", "--to", "y:1", "--topics", "a", "--tls-ca", "pyproject.toml"),
            2,
            "--security-protocol",
        ),
        (
            ("--from", "127.0.0.1:1", "--to", "y:1", "--topics", "a"),
            4,
            "no broker at 127.0.0.1:1, from source",
        ),
    ],
)
def test_a_wrong_command_line_is_told_at_once(
    run: Run, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = run("mirror", *arguments)
    assert ended.code == code
    assert said in ended.err


def test_a_cluster_is_no_mirror_of_itself(world: MirrorWorld, run: Run) -> None:
    world.at_source("topic", "create", "rides")
    address = world.source.address
    other = address.replace("127.0.0.1", "localhost")
    for command in (["mirror", "--topics", "rides", "--once"], ["mirror", "status"]):
        ended = run(*command, "--from", address, "--to", other)
        assert ended.code == 2
        assert "are brokers of the same cluster" in ended.err


def test_no_topic_to_copy_is_an_error_once(world: MirrorWorld) -> None:
    assert "no topic at" in world.mirror(topics="nothing", code=3).err


def read_until(mirror: "subprocess.Popen[str]", words: str) -> None:
    """Read on in what it says, up to the line that begins so."""
    assert mirror.stdout is not None
    said = []
    while not (line := mirror.stdout.readline()).startswith(words):
        said.append(line)
        assert line, said


def commit(address: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=[TopicPartition("rides", 0, offset)], asynchronous=False)
    consumer.close()


def committed(address: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition("rides", 0)], timeout=WAIT_SECONDS)
    except KafkaException as error:
        raise AssertionError(error) from error
    finally:
        consumer.close()
    return int(found.offset)


def delete_records(address: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for answer in admin.delete_records([TopicPartition("rides", 0, before)]).values():
        answer.result(WAIT_SECONDS)
