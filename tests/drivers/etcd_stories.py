"""What the tests of the etcd driver share: options, and stories run on the loop that brokers use."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import uvloop

from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_store import EtcdStore

_numbers = count()


def options_for(
    endpoints: tuple[str, ...],
    *,
    attempt_timeout_ms: int = 5_000,
    request_timeout_ms: int = 20_000,
    watch_ping_ms: int = 300,
    user: str = "",
    password: str = "",
    ca_file: str = "",
    cert_file: str = "",
    key_file: str = "",
) -> EtcdOptions:
    """Options for a cluster that no other test uses."""
    return EtcdOptions(
        endpoints=endpoints,
        cluster=f"c{next(_numbers)}",
        allow_old_versions=True,
        attempt_timeout_ms=attempt_timeout_ms,
        request_timeout_ms=request_timeout_ms,
        watch_ping_ms=watch_ping_ms,
        backoff_ms_max=200,
        user=user,
        password=password,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
    )


def set_timeouts(
    options: EtcdOptions, *, attempt_timeout_ms: int = 5_000, request_timeout_ms: int = 20_000
) -> None:
    """Change those of a connected store: short ones are for an outage, since a busy machine answers late as well."""
    # All parts of a store share its options.
    object.__setattr__(options, "attempt_timeout_ms", attempt_timeout_ms)
    object.__setattr__(options, "request_timeout_ms", request_timeout_ms)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with asyncio.timeout(60):
            await story()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(tell())


@asynccontextmanager
async def connected(options: EtcdOptions) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.connect(options)
    try:
        yield store
    finally:
        await store.close()
