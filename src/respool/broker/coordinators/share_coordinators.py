"""The share coordinators of this broker, on `__share_group_state`: they keep the state of share partitions."""

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping
from typing import Any

from respool.broker.coordinators.coordinator_log import CoordinatorState
from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.coordinators.runtimes import CoordinatorRuntimes, CoordinatorRuntimesOwner
from respool.broker.partitions.partition import Partition
from respool.coordination.share.share_state import ShareKey
from respool.coordination.share_states.share_state_requests import PruneTo, StateRequest
from respool.model.errors import RequestError, StorageError
from respool.model.ids import Offset

logger = logging.getLogger(__name__)

Results = dict[ShareKey, Any]


class ShareCoordinators:
    def __init__(
        self,
        *,
        new_runtimes: Callable[[CoordinatorRuntimesOwner], CoordinatorRuntimes],
        new_machine: Callable[[], CoordinatorState],
        clean: Callable[[Partition], None],
    ) -> None:
        """`clean` deletes segments below the log start of a partition of the topic."""
        self.runtimes = new_runtimes(self)
        self._new_machine = new_machine
        self._clean = clean

    async def ask(
        self,
        values: Mapping[ShareKey, Any],
        request: Callable[[Mapping[ShareKey, Any]], StateRequest],
    ) -> Results:
        """Ask the coordinators here, one request for all share partitions of each; an error is a result, too."""
        results: Results = {}
        batches: dict[CoordinatorRuntime, dict[ShareKey, Any]] = {}
        for key, value in values.items():
            try:
                runtime = self.runtimes.runtime_of(coordinator_name(key))
            except RequestError as error:
                results[key] = error
            else:
                batches.setdefault(runtime, {})[key] = value
        replies = []
        for runtime, batch in batches.items():
            try:
                reply = runtime.ask(request(batch))
            except RequestError as error:
                results.update(dict.fromkeys(batch, error))
            else:
                # When the broker stops, the reply is an error, and the task that waits for it may be cancelled already.
                reply.add_done_callback(_retrieve)
                replies.append((batch, reply))
        for batch, reply in replies:
            try:
                results.update((await reply).results)
            except RequestError as error:
                results.update(dict.fromkeys(batch, error))
        return results

    # -- for the coordinators ------------------------------------------------------------------------------------------

    def new_machine(self, number: int) -> CoordinatorState:
        del number
        return self._new_machine()

    def on_loaded(self, number: int, runtime: CoordinatorRuntime) -> None:
        """Do nothing: leaders and group coordinators come by themselves."""

    def on_effect(self, runtime: CoordinatorRuntime, effect: Any) -> None:
        assert isinstance(effect, PruneTo), effect
        self._prune(runtime.partition, effect.offset)

    def _prune(self, partition: Partition, offset: Offset) -> None:
        """Raise the log start. After a crash before the next checkpoint, it is lower and the log is pruned again."""
        if not partition.is_leading:
            return
        try:
            if partition.log.log_start < offset <= partition.high_watermark:
                partition.log.raise_log_start(offset)
                partition.on_log_start_moved()
                self._clean(partition)
        except (RequestError, StorageError) as error:
            logger.warning("%s: it cannot be pruned: %s", partition.name, error)


def _retrieve(reply: "asyncio.Future[Any]") -> None:
    if not reply.cancelled():
        reply.exception()


def coordinator_name(key: ShareKey) -> str:
    """The name whose hash finds the coordinator: `group:topicId:partition`, with the id as Kafka writes it."""
    topic_id = base64.urlsafe_b64encode(key.topic_id.bytes).rstrip(b"=").decode()
    return f"{key.group}:{topic_id}:{key.partition}"
