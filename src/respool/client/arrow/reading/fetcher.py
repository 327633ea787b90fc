"""One thread that reads some partitions as Arrow: the records of each fetch are decoded and queued for the reader."""

from collections.abc import Sequence
from uuid import UUID

from respool.client.arrow.reading.bounded_queue import BoundedQueue
from respool.client.arrow.reading.pieces import PieceMaker
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import ClientClosed
from respool.client.kafka.reading.cursor import Cursor
from respool.client.kafka.reading.fetch_loop import FetchLoop
from respool.client.kafka.reading.fetch_request import FetchSettings
from respool.client.kafka.reading.read_errors import PartitionUnavailable
from respool.wire.fetch_reply import FetchedPart

TURN_SECONDS = 0.5


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        topic_id: UUID | None,
        cursors: Sequence[Cursor],
        *,
        settings: FetchSettings,
        pieces: PieceMaker,
        queue: BoundedQueue,
        known_partitions: int | None = None,
    ) -> None:
        """The cluster belongs to this read alone: it is interrupted when the read is closed.

        With `known_partitions`, it also reads partitions that are added to the topic: all from this number on.
        """
        self._queue = queue
        self._pieces = pieces
        self._loop = FetchLoop(
            cluster,
            topic,
            topic_id,
            cursors,
            settings=settings,
            owner=self,
            known_partitions=known_partitions,
        )

    def run(self) -> None:
        """The thread's main function."""
        try:
            while not self._loop.is_done:
                self._loop.turn(TURN_SECONDS)
        except ClientClosed as error:
            if not self._queue.is_closed:
                self._queue.fail(error)
        except BaseException as error:  # noqa: BLE001  It is raised where the pieces are taken.
            self._queue.fail(error)
        finally:
            self._loop.close()
            self._queue.finish()

    # -- for the loop --------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        return self._queue.has_room

    def on_records(self, cursor: Cursor, begin: int, part: FetchedPart) -> None:
        self._pieces.hand_on(cursor, begin, part)

    def on_failure(self, error: Exception) -> None:
        """Retries are not reported."""

    def unavailable(self, cursor: Cursor, *, limit_ms: int, error: Exception) -> Exception:
        return PartitionUnavailable(
            f"cannot be read on from offset {cursor.position}, tried for {limit_ms} ms: {error}. "
            f"Everything before it was handed out; begin there when the brokers are well "
            f"(`respool cluster status`), or give them longer with retry_ms",
            topic=cursor.topic,
            partition=cursor.partition,
            offset=cursor.position,
        )

    def wait(self, seconds: float) -> None:
        self._queue.wait(seconds)
