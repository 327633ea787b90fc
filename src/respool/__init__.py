"""Respool: a message broker that can replay history.

The Python entry points are here, imported when they are first used: `import respool` alone imports nothing else.

    respool.read_table, respool.stream_batches      topics as Arrow tables      extra: arrow
    respool.write_table, respool.ArrowProducer      Arrow tables into topics    the same
    respool.Producer, respool.Consumer              one message at a time       extra: client
    respool.AsyncProducer, respool.AsyncConsumer    the same, for asyncio       the same
    respool.Queue, respool.AsyncQueue               each message for one worker     no extra
    respool.start_replay, respool.Replay            replays of a topic          no extra
    respool.start_mirror, respool.Mirror            topics to another cluster   the same
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from respool.client.arrow.errors import WriteFailed
    from respool.client.arrow.prepared import PreparedTransaction
    from respool.client.arrow.write_result import WriteResult
    from respool.client.arrow.writing.arrow_producer import ArrowProducer
    from respool.client.arrow.writing.write_table import write_table
    from respool.client.kafka.security import Login, Security, Tls
    from respool.client.messages.async_consumer import AsyncConsumer
    from respool.client.messages.async_producer import AsyncProducer
    from respool.client.messages.consumer import Consumer
    from respool.client.messages.message import Message, Receipt
    from respool.client.messages.producer import Producer
    from respool.client.messages.retry.retry_options import Retry
    from respool.client.queues.async_queue import AsyncQueue
    from respool.client.queues.queue import Queue
    from respool.client.queues.queue_message import QueueMessage
    from respool.mirror.mirror_handle import Mirror, start_mirror
    from respool.mirror.progress import MirrorEvent, MirrorStatus
    from respool.replay.errors import ReplayError
    from respool.replay.handle import Replay
    from respool.replay.start_replay import start_replay
    from respool.tables.reading.typed_read import read_table, stream_batches

__version__ = "0.1.0"

__all__ = [
    "ArrowProducer",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
    "Consumer",
    "Login",
    "Message",
    "Mirror",
    "MirrorEvent",
    "MirrorStatus",
    "PreparedTransaction",
    "Producer",
    "Queue",
    "QueueMessage",
    "Receipt",
    "Replay",
    "ReplayError",
    "Retry",
    "Security",
    "Tls",
    "WriteFailed",
    "WriteResult",
    "__version__",
    "read_table",
    "start_mirror",
    "start_replay",
    "stream_batches",
    "write_table",
]

# Name -> its module, and the extra that installs its dependencies.
_EXPORTS = {
    "ArrowProducer": ("respool.client.arrow.writing.arrow_producer", "arrow"),
    "AsyncConsumer": ("respool.client.messages.async_consumer", "client"),
    "AsyncProducer": ("respool.client.messages.async_producer", "client"),
    "AsyncQueue": ("respool.client.queues.async_queue", ""),
    "Consumer": ("respool.client.messages.consumer", "client"),
    "Login": ("respool.client.kafka.security", "arrow"),
    "Message": ("respool.client.messages.message", "client"),
    "Producer": ("respool.client.messages.producer", "client"),
    "Queue": ("respool.client.queues.queue", ""),
    "QueueMessage": ("respool.client.queues.queue_message", ""),
    "Receipt": ("respool.client.messages.message", "client"),
    "Retry": ("respool.client.messages.retry.retry_options", "client"),
    "Security": ("respool.client.kafka.security", "arrow"),
    "Tls": ("respool.client.kafka.security", "arrow"),
    "PreparedTransaction": ("respool.client.arrow.prepared", "arrow"),
    "WriteFailed": ("respool.client.arrow.errors", "arrow"),
    "WriteResult": ("respool.client.arrow.write_result", "arrow"),
    "write_table": ("respool.client.arrow.writing.write_table", "arrow"),
    "read_table": ("respool.tables.reading.typed_read", "arrow"),
    "stream_batches": ("respool.tables.reading.typed_read", "arrow"),
    # These need no extra.
    "Mirror": ("respool.mirror.mirror_handle", ""),
    "MirrorEvent": ("respool.mirror.progress", ""),
    "MirrorStatus": ("respool.mirror.progress", ""),
    "start_mirror": ("respool.mirror.mirror_handle", ""),
    "Replay": ("respool.replay.handle", ""),
    "ReplayError": ("respool.replay.errors", ""),
    "start_replay": ("respool.replay.start_replay", ""),
}


if not TYPE_CHECKING:
    # Type checkers see the imports above, and nothing that is not there.
    def __getattr__(name: str) -> Any:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'respool' has no attribute {name!r}")
        from importlib import import_module

        module, extra = _EXPORTS[name]
        try:
            exported = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "respool":
                raise
            from respool.model.extras import how_to_install

            message = f"respool.{name} needs {error.name}, which is not installed: {how_to_install(extra)}"
            raise ImportError(message, name=error.name) from error
        # The next access finds it without calling this function.
        globals()[name] = exported
        return exported


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
