"""The same workload for others: 100 B messages, each acknowledged, many under way; then all read back.

As a command: `nats|redis produce|consume HOST:PORT STREAM COUNT`.
"""

import asyncio
import gc
import sys
from typing import Any

from bench.load_client import announce
from bench.requests import fail_load
from bench.versus.other_programs import use_clients
from bench.versus.payload import payloads

MESSAGE_BYTES = 100
# As many as wait for their acknowledgement.
AT_ONCE = 1_000
FETCH_AT_ONCE = 1_000
WARM_UP = 1_000


def main() -> None:
    server, command, address, stream, count = sys.argv[1:]
    use_clients()
    gc.disable()
    if server == "nats":
        run = _nats_produce if command == "produce" else _nats_consume
        asyncio.run(run(address, stream, int(count)))
    elif command == "produce":
        _redis_produce(address, stream, int(count))
    else:
        _redis_consume(address, stream, int(count))


def _values() -> list[bytes]:
    return [text.encode() for text in payloads(MESSAGE_BYTES, count=1_000)]


async def _nats_produce(address: str, stream: str, count: int) -> None:
    import nats

    values = _values()
    connection = await nats.connect(f"nats://{address}")
    jetstream = connection.jetstream(publish_async_max_pending=AT_ONCE)
    await jetstream.add_stream(name=stream, subjects=[stream])

    async def send(number: int) -> None:
        for at in range(number):
            await jetstream.publish_async(stream, values[at % len(values)])
        await jetstream.publish_async_completed()

    await send(WARM_UP)
    finish = announce()
    await send(count)
    finish(count, count, count * MESSAGE_BYTES)
    await connection.close()


async def _nats_consume(address: str, stream: str, count: int) -> None:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    connection = await nats.connect(f"nats://{address}")
    jetstream = connection.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await jetstream.pull_subscribe(stream, stream=stream, config=config)
    finish = announce()
    taken = 0
    while taken < count:
        taken += len(await subscription.fetch(min(FETCH_AT_ONCE, count - taken), timeout=30))
    finish(taken, taken, taken * MESSAGE_BYTES)
    await connection.close()


def _redis(address: str) -> Any:
    import redis

    host, _, port = address.rpartition(":")
    return redis.Redis(host=host, port=int(port))


def _redis_produce(address: str, stream: str, count: int) -> None:
    values, client = _values(), _redis(address)

    def send(number: int) -> None:
        for start in range(0, number, AT_ONCE):
            with client.pipeline(transaction=False) as pipeline:
                for at in range(min(AT_ONCE, number - start)):
                    pipeline.xadd(stream, {"value": values[at % len(values)]})
                pipeline.execute()

    send(WARM_UP)
    finish = announce()
    send(count)
    finish(count, count, count * MESSAGE_BYTES)


def _redis_consume(address: str, stream: str, count: int) -> None:
    client = _redis(address)
    finish = announce()
    taken, last = 0, b"0"
    while taken < count:
        found = client.xread({stream: last}, count=FETCH_AT_ONCE)
        messages = entries(found, stream)
        if not messages:
            fail_load(f"redis: {taken} of {count} messages came")
        taken += len(messages)
        last = messages[-1][0]
    finish(taken, taken, taken * MESSAGE_BYTES)


def entries(found: Any, stream: str) -> list[Any]:
    """The client's answer is a list of pairs or a dictionary, as its protocol is; a stream's entries may be nested."""
    if not found:
        return []
    listed = found[stream.encode()] if isinstance(found, dict) else found[0][1]
    if listed and isinstance(listed[0], list):
        return list(listed[0])
    return list(listed)


if __name__ == "__main__":
    main()
