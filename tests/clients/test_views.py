"""Views, read by stock clients: each sees the records that match, and comes to the end where nothing matches."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from respool.testing import Broker
from support.all_clients import each_client
from support.confluent_client import ConfluentClient
from support.kcat_client import KCAT, MISSING, kcat
from support.message import KafkaClient, Message
from support.quick_broker import quick_broker
from support.topics import Topics
from support.view_reader import READERS, PlaceReader
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("views")]

PAID = "tag = 'paid'"
END = 200
# As in the middle of a long silence: matches at the start and one later, then nothing.
MATCHES = [*range(10), 100]
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
TIMEOUT_S = 60.0

every_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
every_isolation = pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with quick_broker() as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Topics:
    return Topics(broker.bootstrap)


def message(number: int, *, is_paid: bool) -> Message:
    tag = b"paid" if is_paid else b"open"
    return Message(value=b"%d" % number, key=b"ride-%d" % number, headers=(("tag", tag),))


def produce(broker: Broker, topic: str, messages: list[Message], *, codec: str = "none") -> None:
    ConfluentClient().write(broker.bootstrap, (topic, 0), messages, codec=codec, idempotent=False)


def quiet_view(broker: Broker, topics: Topics, *, codec: str = "none") -> tuple[str, str]:
    """A topic and its view, which ends with a long stretch where nothing matches."""
    topic = topics.new("rides")
    sent = [message(number, is_paid=number in MATCHES) for number in range(END)]
    produce(broker, topic, sent, codec=codec)
    return topic, topics.view(f"{topic}.v.paid", of=topic, where=PAID)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("client", each_client())
def test_each_client_reads_what_matches_at_its_own_offsets(
    broker: Broker, topics: Topics, client: KafkaClient, codec: str
) -> None:
    topic, view = quiet_view(broker, topics, codec=codec)
    found = client.read(broker.bootstrap, [(view, 0)])[view, 0]
    expected = client.read(broker.bootstrap, [(topic, 0)])[topic, 0]
    assert [one.offset for one in found] == MATCHES
    assert found == [one for one in expected if one.offset in MATCHES]


@pytest.mark.parametrize("client", each_client())
def test_the_bounds_of_a_view_are_its_parents(
    broker: Broker, topics: Topics, client: KafkaClient
) -> None:
    _, view = quiet_view(broker, topics)
    assert client.bounds(broker.bootstrap, (view, 0)) == (0, END)


@every_reader
@every_isolation
def test_at_a_quiet_end_position_and_commit_are_the_end(
    broker: Broker, topics: Topics, reader: type[PlaceReader], isolation: str
) -> None:
    _, view = quiet_view(broker, topics)
    one = reader(broker.bootstrap, (view, 0), group=f"{view}-g", isolation=isolation)
    found = one.read_to(END)
    assert [offset for offset, _ in found] == MATCHES
    # Otherwise the group would have lag for ever, and retention would overtake it.
    assert one.commit() == END
    one.close()
    again = reader(broker.bootstrap, (view, 0), group=f"{view}-g", isolation=isolation)
    produce(broker, view.removesuffix(".v.paid"), [message(END, is_paid=True)])
    assert again.read_to(END + 1) == [(END, b"%d" % END)]
    again.close()


@every_reader
def test_thirty_stretches_in_a_row_where_nothing_matches_raise_no_error(
    broker: Broker, topics: Topics, reader: type[PlaceReader]
) -> None:
    """librdkafka takes batches without records for a full fetch size, and raises from the eleventh on."""
    topic, view = quiet_view(broker, topics)
    one = reader(broker.bootstrap, (view, 0), group=f"{view}-g", isolation=UNCOMMITTED)
    one.read_to(END)
    for end in range(END + 1, END + 31):
        produce(broker, topic, [message(end, is_paid=False)])
        assert one.read_to(end) == []
    produce(broker, topic, [message(1, is_paid=True)])
    assert one.read_to(END + 31) == [(END + 30, b"1")]
    assert one.commit() == END + 31
    one.close()


@every_reader
def test_a_reader_rewinds_to_matches_and_between_them(
    broker: Broker, topics: Topics, reader: type[PlaceReader]
) -> None:
    _, view = quiet_view(broker, topics)
    one = reader(broker.bootstrap, (view, 0), group=f"{view}-g", isolation=COMMITTED)
    one.read_to(END)
    for offset, expected in ((0, MATCHES), (50, [100]), (100, [100]), (5, MATCHES[5:]), (150, [])):
        one.seek(offset)
        assert [at for at, _ in one.read_to(END)] == expected
    one.close()


@every_reader
def test_aborted_records_are_shown_to_readers_of_uncommitted_ones_only(
    broker: Broker, topics: Topics, reader: type[PlaceReader]
) -> None:
    topic = topics.new("rides")
    view = topics.view(f"{topic}.v.paid", of=topic, where=PAID)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for number, commits in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for tag in ("paid", "open"):
            producer.produce(topic, f"{number} {tag}", headers={"tag": tag}, partition=0)
        if commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    # Two records and a marker in each.
    found = {}
    for isolation in (COMMITTED, UNCOMMITTED):
        one = reader(broker.bootstrap, (view, 0), group=f"{view}-{isolation}", isolation=isolation)
        found[isolation] = one.read_to(12)
        assert one.commit() == 12
        one.close()
    assert found[COMMITTED] == [(0, b"0 paid"), (6, b"2 paid")]
    assert found[UNCOMMITTED] == [(0, b"0 paid"), (3, b"1 paid"), (6, b"2 paid"), (9, b"3 paid")]


@every_reader
def test_a_reader_of_committed_records_waits_for_an_open_transaction(
    broker: Broker, topics: Topics, reader: type[PlaceReader]
) -> None:
    topic = topics.new("rides")
    view = topics.view(f"{topic}.v.paid", of=topic, where=PAID)
    produce(broker, topic, [message(0, is_paid=False)])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "late", headers={"tag": "paid"}, partition=0)
    producer.flush(TIMEOUT_S)
    one = reader(broker.bootstrap, (view, 0), group=f"{view}-g", isolation=COMMITTED)
    # Not beyond the open transaction: what it commits would never be read.
    assert one.read_to(1) == []
    producer.commit_transaction(TIMEOUT_S)
    assert one.read_to(3) == [(1, b"late")]
    one.close()


@every_reader
def test_a_group_moves_between_parent_and_view(
    broker: Broker, topics: Topics, reader: type[PlaceReader]
) -> None:
    """Offsets are the same, so they are committed for the other one as they are."""
    topic, view = quiet_view(broker, topics)
    group = f"{view}-g"
    of_view = reader(broker.bootstrap, (view, 0), group=group, isolation=COMMITTED)
    of_view.read_to(END)
    at = of_view.commit()
    of_view.close()
    of_parent = reader(broker.bootstrap, (topic, 0), group=group, isolation=COMMITTED)
    of_parent.seek(at)
    produce(broker, topic, [message(END + n, is_paid=n == 1) for n in range(3)])
    assert [offset for offset, _ in of_parent.read_to(END + 3)] == [END, END + 1, END + 2]
    of_parent.close()
    back = reader(broker.bootstrap, (view, 0), group=group, isolation=COMMITTED)
    assert back.read_to(END + 3) == [(END + 1, b"%d" % (END + 1))]
    back.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_subscribes_to_a_view_by_name_and_to_topics_by_pattern(
    broker: Broker, topics: Topics, protocol: str
) -> None:
    """A pattern that matches the view's name as well does not read its records twice."""
    topic, view = quiet_view(broker, topics)

    def assigned(subscription: str) -> set[str]:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": f"{subscription}-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        consumer.subscribe([subscription])
        try:
            while (polled := consumer.poll(TIMEOUT_S)) is not None:
                if polled.error() is None:
                    return {one.topic for one in consumer.assignment()}
        finally:
            consumer.close()
        raise AssertionError(f"nothing came for {subscription}")

    assert assigned(view) == {view}
    assert assigned(f"^{topic}.*") == {topic}


def test_nobody_writes_to_a_view_and_the_producer_goes_on(broker: Broker, topics: Topics) -> None:
    topic, view = quiet_view(broker, topics)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for place in (view, topic):
        producer.produce(place, "x", partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
    refused, accepted = errors
    assert refused is not None
    assert refused.code() == KafkaError.POLICY_VIOLATION
    assert accepted is None


def test_a_deleted_view_is_gone_for_its_readers(broker: Broker, topics: Topics) -> None:
    topic, view = quiet_view(broker, topics)
    topics.delete(view)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def is_gone() -> bool:
        return admin.list_topics(view, timeout=TIMEOUT_S).topics[view].error is not None

    wait_until(is_gone, "the view is deleted")
    with pytest.raises(KafkaException):
        ConfluentClient().bounds(broker.bootstrap, (view, 0))
    assert ConfluentClient().bounds(broker.bootstrap, (topic, 0)) == (0, END)


@pytest.mark.skipif(KCAT is None, reason=MISSING)
def test_kcat_lists_a_view_that_is_named_and_stops_at_its_end(
    broker: Broker, topics: Topics
) -> None:
    topic, view = quiet_view(broker, topics)
    assert f'"{view}"' in kcat(broker.bootstrap, "-L", "-t", view)
    assert f'"{view}"' not in kcat(broker.bootstrap, "-L")
    read = kcat(broker.bootstrap, "-C", "-q", "-e", "-t", view, "-o", "90", "-f", "%o ")
    assert read.split() == ["100"]
    assert f'"{topic}"' in kcat(broker.bootstrap, "-L")
