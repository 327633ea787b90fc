from broker.running_broker import RunningBroker
from broker.views.reading import headers_in
from broker.views.view_broker import add_view, produce
from respool.broker.views.views import ViewReader
from respool.log.partition_log import ReadSpec
from respool.model.ids import Offset

PAID = "rides.v.paid"


def headers_read(broker: RunningBroker, reader: ViewReader) -> list[tuple[int, int, bool]]:
    """What the reader is shown of the view now, from the log's first offset on."""
    view = broker.broker.image.views[PAID]
    partition = broker.broker.partitions.find(view.log_name, 0)
    views = broker.broker.views
    condition = views.condition(partition.log.config, view)
    assert condition is not None
    found = reader.read(
        partition.log,
        ReadSpec(Offset(0), partition.log.log_end, 1 << 20),
        views.thorough_pass(),
        key=(PAID, 0),
        topic_id=partition.topic_id,
        condition=condition,
    )
    return headers_in(b"".join(found.buffers))


def reader_of(broker: RunningBroker) -> ViewReader:
    return ViewReader(broker.broker.views, read_committed=False, takes_zstd=True)


def test_a_waiting_fetch_scans_again_for_a_condition_that_was_changed(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides")
    produce(running_broker, "paid", "new")
    reader = reader_of(running_broker)
    add_view(running_broker, PAID, "tag = 'none'")
    assert headers_read(running_broker, reader) == [(1, 1, True)]
    add_view(running_broker, PAID, "tag = 'paid'")
    assert headers_read(running_broker, reader) == [(0, 0, False), (1, 1, True)]


def test_a_waiting_fetch_scans_again_for_a_view_that_was_created_again_of_another_topic(
    running_broker: RunningBroker,
) -> None:
    """It would skip records of the other topic, beyond that one's end, even."""
    running_broker.create_topic("others")
    running_broker.create_topic("rides")
    produce(running_broker, "new", "new", "new")
    reader = reader_of(running_broker)
    add_view(running_broker, PAID, "tag = 'paid'")
    assert headers_read(running_broker, reader) == [(2, 2, True)]
    produce(running_broker, "paid", topic="others")
    add_view(running_broker, PAID, "tag = 'paid'", of="others")
    assert headers_read(running_broker, reader) == [(0, 0, False)]
