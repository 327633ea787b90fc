"""Every metric is in the table of docs/metrics.md, and everything in the table is a metric."""

import re
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from respool import Queue
from respool.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def documented() -> dict[str, set[str]]:
    """The labels of each name."""
    rows = re.findall(
        r"^\| `(respool_\w+)(?:\{([\w,]+)\})?` \|", PAGE.read_text(), flags=re.MULTILINE
    )
    assert len(rows) == len(dict(rows)), "a name stands there twice"
    return {name: set(labels.split(",")) if labels else set() for name, labels in rows}


def test_the_page_has_every_metric_with_its_labels(tmp_path: Path) -> None:
    settings = {
        "metrics_listen": "127.0.0.1:0",
        "metrics_lag_interval_ms": 1000,
        "archive": tmp_path.as_uri(),
    }
    with Broker(settings=settings, topics={"rides": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("rides", b"x")
        producer.flush()
        group = {"bootstrap.servers": broker.bootstrap, "group.id": "billing"}
        consumer = Consumer({**group, "auto.offset.reset": "earliest"})
        consumer.subscribe(["rides"])
        (message,) = consumer.consume(1, timeout=60)
        consumer.commit(message, asynchronous=False)
        consumer.close()
        # A name that is refused: errors are counted too.
        Consumer(group).list_topics("no/name", timeout=60)
        with Queue("rides", group="printing", bootstrap=broker.bootstrap) as queue:
            # A new group begins at the end.
            assert queue.receive(timeout=0.1) is None
            producer.produce("rides", b"y")
            producer.flush()
            received = queue.receive(timeout=60)
            assert received is not None
            received.accept()
            queue.flush()
            broker.clock.advance(seconds=2)
            broker.clock.advance(seconds=2)
            assert broker.metrics_url is not None
            with urlopen(broker.metrics_url, timeout=60) as reply:
                assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                text = reply.read().decode()
    announced = set(re.findall(r"^# TYPE (respool_\w+) ", text, flags=re.MULTILINE))
    assert announced == set(documented())
    sampled: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            if sample.name.startswith("respool_"):
                name = sample.name if sample.name in announced else family.name
                sampled.setdefault(name, set()).update(set(sample.labels) - {"le"})
    # Followers are there in clusters only.
    missing = {name for name in documented() if name.startswith("respool_replica")}
    assert sampled == {name: labels for name, labels in documented().items() if name not in missing}


def test_settings_that_the_page_names_are_settings() -> None:
    from respool.model.settings import SETTINGS

    named = set(re.findall(r"`(metrics_\w+)", PAGE.read_text()))
    assert named == {one for one in SETTINGS if one.startswith("metrics_")}
