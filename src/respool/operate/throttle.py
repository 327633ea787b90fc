"""The replication throttle: limits the rate at which reassigned partitions are copied to brokers, at run time."""

from collections.abc import Mapping

from respool.cluster import broker_requests
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.broker_config import ALL_BROKERS
from respool.model.ids import BrokerId
from respool.model.operator_errors import OperatorError
from respool.model.topic_defaults import TOPIC_DEFAULT_RULES
from respool.operate.cluster_store import ClusterAddress, ClusterStore

# The broker setting of the throttle.
COPY_RATE = "respool.copy.bytes.per.s.max"
NO_LIMIT = 0
# Stands for all brokers where a broker's number is expected.
ALL = "all"

Throttles = Mapping[str, Mapping[str, str]]


async def set_throttle(
    cluster: ClusterStore, broker: BrokerId | None, rate: int | None
) -> Throttles:
    """Limit copies to a broker, or to all brokers (None); return all throttles.

    With `rate` None, remove the limit, so that the one in the brokers' settings files applies.
    """
    (await cluster.read()).check_exists()
    await cluster.change(lambda view: _writes(view, broker, rate, cluster.address))
    return throttles((await cluster.read()).view)


async def read_throttles(cluster: ClusterStore) -> Throttles:
    """All throttles that were set at run time, with this tool or with Kafka's."""
    snapshot = await cluster.read()
    snapshot.check_exists()
    return throttles(snapshot.view)


def throttles(view: ClusterView) -> Throttles:
    """Throttles by broker number; those for all brokers first."""
    found = {
        # Defaults of topics are changed at run time, too.
        name or ALL: {
            setting: value
            for setting, value in view.broker_overrides[name].values.items()
            if setting not in TOPIC_DEFAULT_RULES
        }
        for name in sorted(view.broker_overrides, key=lambda name: (len(name), name))
    }
    return {name: settings for name, settings in found.items() if settings}


def throttle_documents(found: Throttles) -> list[dict[str, object]]:
    """For JSON; `broker` None stands for all brokers, `bytes_per_s_max` None for no limit."""
    return [
        {
            "broker": None if name == ALL else int(name),
            "setting": setting,
            "bytes_per_s_max": _rate(setting, value),
        }
        for name, settings in found.items()
        for setting, value in sorted(settings.items())
    ]


def _rate(setting: str, value: str) -> int | None:
    is_limit = value.isdecimal() and (setting, value) != (COPY_RATE, str(NO_LIMIT))
    return int(value) if is_limit else None


def _writes(
    view: ClusterView, broker: BrokerId | None, rate: int | None, address: ClusterAddress
) -> list[GuardedWrite]:
    if broker is not None:
        # Report an unknown broker in the same way as other operations do.
        broker_requests.check_is_there(view, broker)
        if rate is not None and view.registry[broker].is_removed:
            # Another broker may be added under its id.
            raise OperatorError(
                f"broker {broker} was removed",
                hint=f"let it in first: {address.command('add', broker)}",
            )
        for_all = view.broker_overrides.get(ALL_BROKERS)
        if rate is None and for_all is not None and COPY_RATE in for_all.values:
            # Otherwise the limit for all brokers would apply to this one.
            rate = NO_LIMIT
        return _write(view, str(broker), rate)
    writes = _write(view, ALL_BROKERS, rate)
    # A limit for one broker takes precedence over the limit for all.
    for name in sorted(view.broker_overrides):
        if name != ALL_BROKERS:
            writes += _write(view, name, None)
    return writes


def _write(view: ClusterView, name: str, rate: int | None) -> list[GuardedWrite]:
    def rewrite(before: Mapping[str, str]) -> Mapping[str, str]:
        others = {one: text for one, text in before.items() if one != COPY_RATE}
        return others if rate is None else others | {COPY_RATE: str(rate)}

    return broker_requests.configure(view, name, rewrite)
