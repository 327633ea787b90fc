"""A broker in this process that archives to a folder at once, and keeps next to nothing on its disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from respool.testing import Broker
from support.message import Message
from support.waiting import wait_until

FIRST_MS = 1_700_000_000_000


def archiving_broker(folder: Path, *, data: Path | None = None) -> Broker:
    settings = {
        "archive": folder.as_uri(),
        "archive_check_ms": 20,
        "archive_delete_delay_ms": 0,
        "retention_check_ms": 20,
    }
    return Broker(settings=settings, data=data)


def archived_topic(broker: Broker, **settings: Any) -> str:
    """A topic whose segments are closed, archived and removed at once."""
    all_settings: dict[str, Any] = {
        "remote_storage_enable": "true",
        "local_retention_ms": "1",
        "segment_bytes": "20000",
        "respool_archive_max_age_ms": "0",
        "file_delete_delay_ms": "0",
        "retention_ms": "-1",
        **settings,
    }
    return broker.new_topic("rides", **all_settings)


def messages(count: int, *, begin: int = 0) -> list[Message]:
    """Messages a second apart."""
    return [
        Message(
            value=b"%d" % at + b"." * 90,
            key=b"ride-%d" % at,
            timestamp_ms=FIRST_MS + at * 1_000,
            headers=(("n", b"%d" % at), ("tag", b"paid" if at % 100 == 7 else b"open")),
        )
        for at in range(begin, begin + count)
    ]


def write(broker: Broker, topic: str, sent: Sequence[Message]) -> None:
    """In batches of 50, so that segments have several."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 50, "linger.ms": 5}
    )
    for message in sent:
        producer.produce(
            topic,
            message.value,
            message.key,
            0,
            timestamp=message.timestamp_ms or 0,
            headers=list(message.headers),
        )
    assert producer.flush(30) == 0


def local_bases(broker: Broker, topic: str) -> list[int]:
    return sorted(int(one.stem) for one in (Path(broker.data) / f"{topic}-0").glob("*.log"))


def wait_until_archived(broker: Broker, topic: str, end: int) -> None:
    """Wait until no record before `end` is on the broker's disk."""
    wait_until(
        lambda: local_bases(broker, topic)[0] >= end, "everything is archived, and local no more"
    )


def segments_of(folder: Path, topic: str) -> list[Path]:
    return sorted((folder / "topics" / topic).rglob("*.seg"))
