"""A `Cluster` whose brokers answer what a test says, in that order: no sockets, no threads, and time that is a number.

Metadata have two brokers and a topic `rides`, with a leader on each and a partition that has none. Retries, the search
for coordinators and the encoding of requests are the client's own.
"""

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.metadata import Address
from respool.client.kafka.retries import RetryTimer
from respool.client.kafka.versions import VERSIONS, VersionRange
from respool.wire.api_table import Api
from respool.wire.client_codec import encode_request

ONE, TWO = ("one", 9092), ("two", 9092)
BROKERS = {1: ONE, 2: TWO}
TOPIC = "rides"


class Asked(NamedTuple):
    address: Address
    api: Api
    versions: VersionRange
    fields: Mapping[str, Any]


class ScriptedCluster(Cluster):
    """The last of the replies is repeated; one that is a function gets the request's fields."""

    def __init__(self, *replies: Any, retry_ms: int = 10_000) -> None:
        super().__init__("one:9092", retry_ms=retry_ms, first_contact_ms=retry_ms)
        self._replies_left = list(replies)
        # Topic -> partition -> leader. The internal topic of transactions has one partition, where there is one.
        self.topics: dict[str, dict[int, int | None]] = {
            TOPIC: {0: 1, 1: 2, 2: None},
            "__transaction_state": {0: 1},
        }
        # What was asked but for metadata.
        self.asked: list[Asked] = []
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 3)

    def retry_timer(self, limit_ms: int | None = None) -> RetryTimer:
        limit_ms = self.retry_ms if limit_ms is None else limit_ms
        return RetryTimer(limit_ms, sleep=self.sleep, monotonic=lambda: self.now)

    def _request_at(
        self,
        address: Address,
        api: Api,
        fields: Mapping[str, Any],
        *,
        versions: VersionRange | None = None,
        wait_ms: int = 0,
    ) -> Any:
        asked = Asked(address, api, versions or VERSIONS[api], fields)
        # It must be a request that can be sent.
        for version in asked.versions:
            encode_request(api, version, fields, correlation_id=1, client_id="c")
        if api == Api.METADATA:
            return self._metadata_reply(fields["topics"])
        self.asked.append(asked)
        several = len(self._replies_left) > 1
        reply = self._replies_left.pop(0) if several else self._replies_left[0]
        return reply(fields) if isinstance(reply, Callable) else reply  # type: ignore[arg-type]

    def _metadata_reply(self, topics: Any) -> Any:
        names = self.topics if topics is None else [one["name"] for one in topics]
        return SimpleNamespace(
            brokers=[
                SimpleNamespace(node_id=number, host=host, port=port)
                for number, (host, port) in BROKERS.items()
            ],
            controller_id=1,
            cluster_id="scripted",
            topics=[self._topic_reply(name) for name in names],
        )

    def _topic_reply(self, name: str) -> Any:
        leaders = self.topics.get(name)
        code = ErrorCode.unknown_topic_or_partition if leaders is None else ErrorCode.none
        return SimpleNamespace(
            name=name,
            topic_id=None,
            error_code=code,
            is_internal=False,
            partitions=list(_partitions(leaders or {})),
        )


def _partitions(leaders: Mapping[int, int | None]) -> Iterator[Any]:
    for number, leader in leaders.items():
        yield SimpleNamespace(
            partition_index=number,
            leader_id=-1 if leader is None else leader,
            leader_epoch=0,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
        )
