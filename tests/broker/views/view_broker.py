"""A broker with a topic and views of it, and fetches of them as raw requests."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

from broker.running_broker import NOWHERE, RunningBroker
from respool.model.cluster import TopicImage, ViewOf
from respool.model.ids import TopicId
from respool.model.where import parse_where
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

BY_NAME, BY_ID = 12, 16
READ_COMMITTED = 1


def add_view(broker: RunningBroker, name: str, where: str, *, of: str = "rides") -> UUID:
    """Add it to the broker's image, until the next change of the image."""
    catalog = broker.broker.catalog
    image = catalog.image
    parent = image.topics[of]
    view = TopicImage(
        name=name,
        id=TopicId(uuid5(NOWHERE, name)),
        partitions=parent.partitions,
        overrides={},
        config=parent.config,
        view=ViewOf(parent=of, parent_id=parent.id, where=parse_where(where)),
    )
    catalog.image = replace(
        image,
        views={**image.views, name: view},
        views_by_id={**image.views_by_id, view.id: view},
    )
    return view.id


def produce(
    broker: RunningBroker, *tags: str, topic: str = "rides", partition: int = 0, **batch: Any
) -> int:
    """Append one batch with a record per tag, whose value is the tag, too; return its base offset."""
    now_ms = broker.clock.now_ms()
    records = [
        NewRecord(value=tag.encode(), timestamp_ms=now_ms, headers=(("tag", tag.encode()),))
        for tag in tags
    ]
    return append(broker, build_batch(records, **batch), topic=topic, partition=partition)


def append(broker: RunningBroker, batch: bytes, *, topic: str = "rides", partition: int = 0) -> int:
    reply = broker.ask(
        Api.PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    )
    (answer,) = reply.responses[0].partition_responses
    assert answer.error_code == 0, answer
    return int(answer.base_offset)


def fetch_fields(
    *topics: str,
    offset: int = 0,
    partitions: tuple[int, ...] = (0,),
    topic_id: UUID | None = None,
    committed: bool = False,
    bytes_max: int = 1 << 20,
    max_bytes: int = 1 << 20,
    max_wait: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": int(committed),
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [
            {
                "topic": topic,
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": offset,
                        "partition_max_bytes": bytes_max,
                    }
                    for partition in partitions
                ],
            }
            for topic in topics
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def fetch(broker: RunningBroker, *topics: str, version: int = BY_NAME, **fields: Any) -> Any:
    """The reply's only partition."""
    (topic,) = broker.ask(Api.FETCH, version, **fetch_fields(*topics, **fields)).responses
    (partition,) = topic.partitions
    return partition
