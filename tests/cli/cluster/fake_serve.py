"""Stands in for `respool serve` in a cluster: it registers, and ends when it is asked to. It serves nothing.

FAKE_BROKER in the environment says who misbehaves: 2:deaf ignores SIGTERM, 2:refuse ends at once.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from uuid import uuid4

from respool.cluster import keys
from respool.cluster.keys import BrokerRegistration
from respool.model.cluster import BrokerEndpoint, RegistryEntry
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.node.config import load_settings
from respool.node.etcd import connect_to_etcd


async def serve(settings: Settings, trouble: str) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if trouble == "deaf" else asked.set)
    os.makedirs(settings.data, exist_ok=True)
    host, port = settings.network.listen_address
    server = await asyncio.start_server(lambda *_: None, host, port)
    store = await connect_to_etcd(settings)
    me = BrokerId(settings.broker_id)
    while await store.get(keys.broker_key(me)) is not None:
        await asyncio.sleep(0.05)
    port = server.sockets[0].getsockname()[1]
    endpoint = BrokerEndpoint(id=me, host=host, port=port, rack=settings.rack)
    registration = BrokerRegistration(endpoint=endpoint, incarnation=uuid4())
    lease = await store.grant_lease(2_000)
    await store.transact(puts={keys.registry_key(me): keys.encode_registry(RegistryEntry())})
    await store.transact(puts={keys.broker_key(me): keys.encode_broker(registration)}, lease=lease)
    print(f"fake broker {me} is up", flush=True)
    while not asked.is_set():
        await store.keep_alive(lease)
        with suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), 0.5)
    print(f"fake broker {me} stops", flush=True)
    await store.revoke_lease(lease)
    await store.close()
    server.close()


def main() -> None:
    given = dict(one.removeprefix("--").split("=", 1) for one in sys.argv[1:])
    config = given.pop("config")
    flags = {name.replace("-", "_"): value for name, value in given.items()}
    settings = load_settings(file=config, environ=os.environ, flags=flags)
    number, _, trouble = os.environ.get("FAKE_BROKER", "").partition(":")
    trouble = trouble if number == str(settings.broker_id) else ""
    if trouble == "refuse":
        sys.exit("respool: the port is taken")
    asyncio.run(serve(settings, trouble))


if __name__ == "__main__":
    main()
