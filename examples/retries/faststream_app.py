"""A FastStream application that retries: BROKER=... TOPIC=... GROUP=... faststream run faststream_app:app

A middleware sends failed messages on. Their offset is committed after that, because the handler is done then.
"""

import asyncio
import os
from typing import Any

from failed_messages import FailedMessages
from faststream import AckPolicy, BaseMiddleware, FastStream
from faststream.confluent import KafkaBroker, KafkaMessage
from plain_consumer import handle

BROKER = os.environ.get("BROKER", "127.0.0.1:9092")
TOPIC = os.environ.get("TOPIC", "invoices")
GROUP = os.environ.get("GROUP", "billing")

failed = FailedMessages(BROKER, GROUP, delays=("1s", "1s"), give_up=(ValueError,))


class Retrying(BaseMiddleware):
    async def consume_scope(self, call_next: Any, msg: KafkaMessage) -> Any:
        try:
            return await call_next(msg)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            await asyncio.to_thread(failed.send_on, msg.raw_message, error)


broker = KafkaBroker(BROKER, middlewares=[Retrying])
app = FastStream(broker)


@broker.subscriber(
    TOPIC,
    failed.retry_topic,
    group_id=GROUP,
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def bill(message: KafkaMessage) -> None:
    handle(message.body, attempt=failed.attempt_of(message.raw_message))
