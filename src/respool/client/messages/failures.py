"""Messages that could not be delivered, kept until they are reported."""

import threading
from collections.abc import Callable
from typing import Any

from respool.client.messages import library
from respool.client.messages.errors import ClientError, DeliveryFailed, Undelivered
from respool.client.messages.library import KafkaException
from respool.client.messages.message import Receipt

_KEPT_MAX = 100

# Called once per message, with a receipt or an error.
Tell = Callable[[Receipt | ClientError], None]
# librdkafka's callback signature: an error or None, and the message.
OnDelivery = Callable[[Any, Any], None]


class Failures:
    """Filled by the thread that serves librdkafka's callbacks, drained by the thread that raises."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        with self._lock:
            self._kept: list[Undelivered] = []
            self._count = 0
            self._first: BaseException | None = None

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            return
        with self._lock:
            self._count += 1
            if self._first is None:
                self._first = KafkaException(error)
            if len(self._kept) < _KEPT_MAX:
                self._kept.append(_undelivered(error, message))

    def raise_any(self) -> None:
        """Raises DeliveryFailed once for all collected failures, and clears them."""
        if not self._count:
            return
        with self._lock:
            failed, cause = DeliveryFailed(self._kept, self._count), self._first
            self._kept, self._count, self._first = [], 0, None
        raise failed from cause


def telling(tell: Tell, *, has_acks: bool) -> OnDelivery:
    """A callback for a message whose sender waits: only that sender receives the outcome."""

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            offset = message.offset() if has_acks else None
            tell(Receipt(topic=message.topic(), partition=message.partition(), offset=offset))
            return
        failed = DeliveryFailed([_undelivered(error, message)], 1)
        failed.__cause__ = KafkaException(error)
        tell(failed)

    return on_delivery


def _undelivered(error: Any, message: Any) -> Undelivered:
    partition = message.partition()
    return Undelivered(
        topic=message.topic(),
        partition=partition if partition is not None and partition >= 0 else None,
        key=message.key(),
        reason=library.reason(KafkaException(error)),
    )
