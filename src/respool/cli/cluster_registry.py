"""What `respool cluster up` looks up in its cluster's store: who runs, and who was drained or removed."""

from respool.cluster import keys
from respool.model.cluster import BrokerEndpoint, RegistryEntry
from respool.model.errors import SettingsError
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.node.etcd import connect_to_etcd
from respool.ports.metadata_store import MetadataStore, StoreUnavailable


async def registered(store: MetadataStore) -> dict[BrokerId, BrokerEndpoint]:
    values = (await store.snapshot(keys.BROKERS)).values
    found = {}
    for key, stored in values.items():
        broker = BrokerId(int(key.removeprefix(keys.BROKERS)))
        found[broker] = keys.decode_broker(broker, stored.value, revision=stored.revision).endpoint
    return found


async def entry_of(store: MetadataStore, number: int) -> RegistryEntry | None:
    """None: nobody has ever heard of it."""
    stored = await store.get(keys.registry_key(BrokerId(number)))
    return None if stored is None else keys.decode_registry(stored.value)


async def is_removed(store: MetadataStore, number: int, *, or_unknown: bool = False) -> bool:
    entry = await entry_of(store, number)
    return or_unknown if entry is None else entry.is_removed


async def ask_entry(settings: Settings, number: int) -> RegistryEntry:
    """One broker's entry, for words only: where nobody answers, that of a broker of which nothing is known."""
    try:
        store = await connect_to_etcd(settings)
    except (StoreUnavailable, SettingsError):
        return RegistryEntry()
    try:
        return await entry_of(store, number) or RegistryEntry()
    except StoreUnavailable:
        return RegistryEntry()
    finally:
        await store.close()


def what_is_next(
    entry: RegistryEntry, number: int, *, flags: str, again: str, was_last: bool
) -> str:
    """What becomes of a broker that has ended; `flags` lead a command to the cluster.

    `again` is the command that starts it, while others go on: with the last one etcd ends, too.
    """
    if entry.is_removed:
        return "it was removed from the cluster: the next run leaves it out"
    if entry.is_drained:
        return (
            f"it was drained: take it out with: respool cluster remove {number} {flags}; "
            "the next run starts it again otherwise"
        )
    if was_last:
        return "it was the last one: start them all again, by the next run"
    return f"the others go on; start it again with: {again}; or with all of them, by the next run"
