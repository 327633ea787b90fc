"""An archived topic, read by stock clients: offsets, times and transactions are as if everything were local."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from respool.testing import Broker
from support.all_clients import each_client
from support.archived_broker import (
    FIRST_MS,
    archived_topic,
    archiving_broker,
    local_bases,
    messages,
    segments_of,
    wait_until_archived,
    write,
)
from support.confluent_client import ConfluentClient
from support.message import KafkaClient, Message
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("archive")]

COUNT = 1_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with archiving_broker(folder) as running:
        yield running


@pytest.fixture(scope="module")
def archived(broker: Broker) -> tuple[str, list[Message]]:
    topic, sent = archived_topic(broker), messages(COUNT)
    write(broker, topic, sent)
    wait_until_archived(broker, topic, COUNT)
    return topic, sent


@pytest.mark.parametrize("client", each_client())
def test_each_client_reads_a_topic_none_of_whose_older_bytes_are_local(
    broker: Broker, archived: tuple[str, list[Message]], client: KafkaClient
) -> None:
    topic, sent = archived
    assert client.bounds(broker.bootstrap, (topic, 0)) == (0, COUNT)
    found = client.read(broker.bootstrap, [(topic, 0)])[topic, 0]
    assert [one.offset for one in found] == list(range(COUNT))
    assert [one.value for one in found] == [one.value for one in sent]


@pytest.mark.parametrize("client", each_client())
def test_each_client_finds_archived_records_by_time(
    broker: Broker, archived: tuple[str, list[Message]], client: KafkaClient
) -> None:
    topic, _ = archived
    for offset in (0, 1, 137, 500, COUNT - 1):
        time_ms = FIRST_MS + offset * 1_000
        assert client.offset_at(broker.bootstrap, (topic, 0), time_ms) == offset
        assert client.offset_at(broker.bootstrap, (topic, 0), time_ms - 1) == offset
    assert client.offset_at(broker.bootstrap, (topic, 0), FIRST_MS + COUNT * 1_000) is None


@pytest.mark.parametrize("client", each_client())
def test_a_reader_continues_from_the_archive_into_live_records(
    broker: Broker, client: KafkaClient
) -> None:
    topic = archived_topic(broker, respool_archive_max_age_ms="-1")
    sent = messages(COUNT)
    write(broker, topic, sent)
    wait_until(lambda: local_bases(broker, topic)[0] > 0, "older segments are archived")
    found = client.read_from(broker.bootstrap, (topic, 0), 3, count=COUNT - 3)
    assert [one.offset for one in found] == list(range(3, COUNT))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_stay_hidden_where_they_are_archived(
    broker: Broker, isolation: str
) -> None:
    """Some begin in a segment and are aborted in a later one, or in one that is not archived."""
    topic = archived_topic(broker, respool_archive_max_age_ms="-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-t"})
    producer.init_transactions(30)
    committed = []
    for transaction in range(12):
        producer.begin_transaction()
        for at in range(150):
            value = b"%d-%d" % (transaction, at) + b"." * 60
            producer.produce(topic, value)
            if not at % 30:
                producer.flush()
            if transaction % 3 != 1:
                committed.append(value)
        if transaction % 3 == 1:
            # An abort discards what was not sent yet.
            producer.flush()
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    wait_until(lambda: local_bases(broker, topic)[0] > 300, "older segments are archived")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        found.append(message.value())
    consumer.close()
    if isolation == "read_committed":
        assert found == committed
    else:
        assert len(found) == 12 * 150


def test_a_restart_and_a_crash_change_nothing(folder: Path, tmp_path: Path) -> None:
    with archiving_broker(tmp_path) as broker:
        topic = archived_topic(broker)
        write(broker, topic, messages(300))
        wait_until_archived(broker, topic, 300)
        for again in (broker.restart, broker.crash):
            again()
            if not broker.is_running:
                broker.start()
            client = ConfluentClient()
            assert client.bounds(broker.bootstrap, (topic, 0)) == (0, 300)
            found = client.read(broker.bootstrap, [(topic, 0)])[topic, 0]
            assert [one.offset for one in found] == list(range(300))
        write(broker, topic, messages(300, begin=300))
        wait_until_archived(broker, topic, 600)
        found = client.read(broker.bootstrap, [(topic, 0)])[topic, 0]
        assert [one.offset for one in found] == list(range(600))


def test_deleted_records_are_gone_from_the_archive_too(broker: Broker, folder: Path) -> None:
    topic = archived_topic(broker)
    write(broker, topic, messages(600))
    wait_until_archived(broker, topic, 600)
    objects = segments_of(folder, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 350)])[TopicPartition(topic, 0)].result(30)
    client = ConfluentClient()
    assert client.bounds(broker.bootstrap, (topic, 0)) == (350, 600)
    found = client.read(broker.bootstrap, [(topic, 0)])[topic, 0]
    assert [one.offset for one in found] == list(range(350, 600))
    wait_until(
        lambda: len(segments_of(folder, topic)) < len(objects), "objects nobody needs are deleted"
    )
    broker.restart()
    assert client.bounds(broker.bootstrap, (topic, 0)) == (350, 600)


def test_retention_covers_both_tiers(broker: Broker, folder: Path) -> None:
    topic = archived_topic(broker, retention_bytes="70000", local_retention_bytes="-2")
    write(broker, topic, messages(2_000))
    client = ConfluentClient()
    wait_until(
        lambda: client.bounds(broker.bootstrap, (topic, 0))[0] > 0, "archived records expire"
    )
    begin, end = client.bounds(broker.bootstrap, (topic, 0))
    found = client.read_from(broker.bootstrap, (topic, 0), begin, count=end - begin)
    assert [one.offset for one in found] == list(range(begin, end))


def test_a_damaged_object_is_not_served_and_the_rest_is(broker: Broker, folder: Path) -> None:
    topic = archived_topic(broker)
    write(broker, topic, messages(600))
    wait_until_archived(broker, topic, 600)
    damaged = segments_of(folder, topic)[1]
    begin, end = (int(one) for one in damaged.name.split("-")[:2])
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    client = ConfluentClient()
    found = client.read_from(broker.bootstrap, (topic, 0), 0, count=begin)
    assert [one.offset for one in found] == list(range(begin))
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "latest"}
    )
    consumer.assign([TopicPartition(topic, 0, begin)])
    # Never a silent skip: the consumer stays where it is.
    assert consumer.poll(3) is None
    consumer.close()
    found = client.read_from(broker.bootstrap, (topic, 0), end, count=600 - end)
    assert [one.offset for one in found] == list(range(end, 600))
    data[100] ^= 1
    damaged.write_bytes(data)
    found = client.read_from(broker.bootstrap, (topic, 0), begin, count=600 - begin)
    assert [one.offset for one in found] == list(range(begin, 600))


def test_an_archive_that_is_away_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    with archiving_broker(folder) as broker:
        topic = archived_topic(broker)
        write(broker, topic, messages(300))
        wait_until_archived(broker, topic, 300)
        folder.rename(tmp_path / "away")
        write(broker, topic, messages(300, begin=300))
        client = ConfluentClient()
        assert client.bounds(broker.bootstrap, (topic, 0)) == (0, 600)
        found = client.read_from(broker.bootstrap, (topic, 0), 300, count=300)
        assert [one.offset for one in found] == list(range(300, 600))
        wait_until(lambda: "nothing is lost" in broker.log, "the broker says what is wrong")
        (tmp_path / "away").rename(folder)
        wait_until_archived(broker, topic, 600)
        found = client.read(broker.bootstrap, [(topic, 0)])[topic, 0]
        assert [one.offset for one in found] == list(range(600))


def test_two_clusters_do_not_mix_in_one_archive(tmp_path: Path) -> None:
    with archiving_broker(tmp_path) as broker:
        topic = archived_topic(broker)
        write(broker, topic, messages(100))
        wait_until_archived(broker, topic, 100)
    before = sorted(tmp_path.rglob("*.json"))
    with archiving_broker(tmp_path) as other:
        topic = archived_topic(other)
        write(other, topic, messages(100))
        wait_until(lambda: "is the archive of cluster" in other.log, "the second one is refused")
        assert local_bases(other, topic)[0] == 0
    assert sorted(tmp_path.rglob("*.json")) == before


@pytest.mark.parametrize("client", each_client())
def test_a_view_shows_archived_records(broker: Broker, client: KafkaClient) -> None:
    topic = archived_topic(broker)
    view = Topics(broker.bootstrap).view(f"{topic}.v.paid", of=topic, where="tag = 'paid'")
    write(broker, topic, messages(COUNT))
    wait_until_archived(broker, topic, COUNT)
    found = client.read(broker.bootstrap, [(view, 0)])[view, 0]
    assert [one.offset for one in found] == list(range(7, COUNT, 100))
