"""Requests to the coordinator of a transactional id or a group, which is looked up again when it has moved."""

from collections.abc import Callable, Mapping
from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import COORDINATOR_MOVED, COORDINATOR_RETRIED, refused
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable
from respool.client.kafka.versions import VersionRange
from respool.wire.api_table import Api

# The cluster feature for the transaction protocol, and the level from which each transaction has its own epoch.
TRANSACTION_FEATURE = "transaction.version"
EPOCH_PER_TRANSACTION_LEVEL = 2


class Coordinator:
    def __init__(self, cluster: Cluster, key: str, *, is_transaction: bool) -> None:
        self._cluster = cluster
        self._key = key
        self._is_transaction = is_transaction
        self._broker: int | None = None

    def request(
        self,
        api: Api,
        fields: Mapping[str, Any],
        *,
        doing: str,
        versions: VersionRange | None = None,
        code_of: Callable[[Any], Any] = lambda reply: reply.error_code,
        limit_ms: int | None = None,
    ) -> Any:
        """Send a request; return the reply. Retries transient errors for `limit_ms`, or else the cluster's `retry_ms`.

        Raises:
            BrokerRefused, BrokerUnreachable
        """

        def attempt() -> Any:
            try:
                reply = self._cluster.request(self.find(), api, fields, versions=versions)
            except BrokerUnreachable:
                self._broker = None
                raise
            code = code_of(reply)
            if int(code) in COORDINATOR_MOVED:
                self._broker = None
            if code:
                error = refused(doing, code)
                error.retriable |= int(code) in COORDINATOR_RETRIED
                raise error
            return reply

        return self._cluster.retrying(attempt, limit_ms=limit_ms)

    def has_epoch_per_transaction(self) -> bool:
        """Whether the cluster uses transaction protocol version 2 (KIP-890).

        Raises:
            BrokerRefused, BrokerUnreachable
        """

        def attempt() -> bool:
            try:
                features = self._cluster.features(self.find())
            except BrokerUnreachable:
                self._broker = None
                raise
            return features.get(TRANSACTION_FEATURE, 0) >= EPOCH_PER_TRANSACTION_LEVEL

        return self._cluster.retrying(attempt)

    def find(self) -> int:
        """The coordinator's broker id; looked up, without retries, if not known.

        Raises:
            BrokerRefused, BrokerUnreachable
        """
        if self._broker is None:
            try:
                self._broker = self._cluster.coordinator(
                    self._key, is_transaction=self._is_transaction
                )
            except BrokerRefused as error:
                error.retriable |= error.code in COORDINATOR_RETRIED
                raise
        return self._broker
