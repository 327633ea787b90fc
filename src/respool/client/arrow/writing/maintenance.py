"""A producer's maintenance thread: refreshes metadata, expires batches, renews producer ids with exhausted epochs."""

import time
from threading import Thread

from respool.client.arrow.writing.delivery import Delivery
from respool.client.kafka.errors import ClientClosed, ClientError
from respool.client.kafka.producer_ids import new_producer_id

# How often deadlines are checked while batches are in flight.
CHECK_EVERY_S = 0.1
RETRY_AFTER_S = 0.05


class MaintenanceThread:
    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._thread = Thread(target=self._run, name="respool-write-maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while (topics := self._next_topics()) is not None:
                for topic in topics:
                    self._refresh(topic)
                self._renew_producer_id()
                if topics:
                    self._delivery.cluster.sleep(RETRY_AFTER_S)
        except ClientClosed:
            return
        except BaseException as error:
            self._delivery.crash(error)
            raise

    def _next_topics(self) -> list[str] | None:
        """Topics whose metadata must be refreshed, once there are any or a check is due; None at the end."""
        delivery = self._delivery
        with delivery.changed:
            check_at = time.monotonic() + CHECK_EVERY_S
            while not delivery.is_stopping:
                now = time.monotonic()
                delivery.stale |= {
                    place[0] for place in delivery.active if place not in delivery.leaders
                }
                if delivery.stale:
                    delivery.expire(int(now * 1000))
                    return sorted(delivery.stale)
                if now >= check_at:
                    delivery.expire(int(now * 1000))
                    return []
                delivery.changed.wait(max(0.0, check_at - now) if delivery.active else None)
        return None

    def _refresh(self, topic: str) -> None:
        delivery = self._delivery
        try:
            seen = delivery.cluster.refresh(topic)
        except ClientClosed:
            raise
        except ClientError as error:
            with delivery.changed:
                delivery.on_no_metadata(topic, str(error))
            return
        with delivery.changed:
            delivery.on_metadata(seen)

    def _renew_producer_id(self) -> None:
        delivery = self._delivery
        with delivery.changed:
            wanted = any(queue.wants_identity for queue in delivery.active.values())
        if not wanted:
            return
        try:
            identity = new_producer_id(delivery.cluster)
        except ClientClosed:
            raise
        except ClientError:
            return
        with delivery.changed:
            delivery.identity = identity
            for queue in delivery.active.values():
                if queue.wants_identity:
                    queue.restart_as(identity)
            delivery.changed.notify_all()
