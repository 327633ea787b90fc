"""The work of `respool cluster throttle`: how fast partitions are copied to brokers, changed while they run."""

from collections.abc import Mapping

from respool.cli import cluster_store, options, output
from respool.cli.cluster_address import ClusterAddress
from respool.cli.cluster_store import ClusterStore
from respool.cluster import broker_requests
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.broker_config import ALL_BROKERS
from respool.model.ids import BrokerId
from respool.model.operator_errors import OperatorError, UsageError

COPIES = "respool.copy.bytes.per.s.max"
NO_LIMIT = 0
# With less, copies come in bursts.
LOW_RATE = 1024 * 1024
# Who gives so few without a unit has another one in mind: 50 is 50 MB.
UNLIKELY_RATE = 10_000
# What brokers are called that have no number.
ALL = "all"


def rate_by(text: str) -> int:
    """Bytes a second, as somebody has written them.

    Raises:
        UsageError: they are none; or so few, and without a unit, that another one must have been meant.
    """
    text = text.strip().lower().removesuffix("/s")
    rate = options.byte_count(text, option="RATE", or_word="none")
    if rate == 0:
        raise UsageError(
            "RATE 0 could mean nothing at all, or no limit", hint="none lifts the limit"
        )
    if rate < UNLIKELY_RATE and text.isdecimal():
        raise UsageError(
            f"RATE {rate} would be bytes a second: next to nothing would be copied",
            hint=f"give it a unit: {rate}MB, or {rate}b if that is meant",
        )
    return rate


def throttle(
    address: ClusterAddress, broker: BrokerId | None, rate: int | None, *, as_json: bool
) -> None:
    """Let copies to a broker, or to all, go no faster; None: there is no limit any more but that of settings files."""

    async def work(cluster: ClusterStore) -> dict[str, Mapping[str, str]]:
        (await cluster.look()).check_is_there()
        await cluster.change(lambda view: _writes(view, broker, rate, address))
        return throttles((await cluster.look()).view)

    left = cluster_store.run(address, work)
    if as_json:
        output.print_json({"broker": broker, "bytes_per_s_max": rate})
        return
    whom = "each broker" if broker is None else f"broker {broker}"
    if rate is not None:
        output.note(f"copies to {whom} take no more than {output.human_bytes(rate)} a second")
        if rate < LOW_RATE:
            output.note("they come in pieces of up to 16 MiB, so that is long waits between them")
    elif COPIES in left.get(str(broker), {}):
        output.note(f"copies to {whom} go as fast as they can")
    else:
        output.note(f"copies to {whom} go as fast as its settings file says (copy_bytes_per_s_max)")
    if any(settings.keys() - {COPIES} for settings in left.values()):
        output.note(f"other tools have set throttles, too: {address.command('throttle')}")


def show(address: ClusterAddress, *, as_json: bool) -> None:
    """All that was set for brokers while they ran, by whatever tool."""

    async def work(cluster: ClusterStore) -> Mapping[str, Mapping[str, str]]:
        sight = await cluster.look()
        sight.check_is_there()
        return throttles(sight.view)

    found = cluster_store.run(address, work)
    if as_json:
        output.print_json({"throttles": throttle_documents(found)})
        return
    rows = [
        (name, setting, _in_words(setting, value) if output.is_terminal() else value)
        for name, settings in found.items()
        for setting, value in sorted(settings.items())
    ]
    output.print_rows(output.Columns("broker", "setting", "bytes per second"), rows)
    if not rows:
        output.note("nothing is throttled but by the brokers' settings files")


def _in_words(setting: str, value: str) -> str:
    return "no limit" if (setting, value) == (COPIES, str(NO_LIMIT)) else value


def throttles(view: ClusterView) -> dict[str, Mapping[str, str]]:
    """By the brokers' numbers; those of all brokers first."""
    return {
        name or ALL: dict(view.broker_overrides[name].values)
        for name in sorted(view.broker_overrides, key=lambda name: (len(name), name))
    }


def throttle_documents(found: Mapping[str, Mapping[str, str]]) -> list[dict[str, object]]:
    """For programs; `broker` None stands for all brokers, `bytes_per_s_max` None for no limit."""
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
    is_limit = value.isdecimal() and (setting, value) != (COPIES, str(NO_LIMIT))
    return int(value) if is_limit else None


def _writes(
    view: ClusterView, broker: BrokerId | None, rate: int | None, address: ClusterAddress
) -> list[GuardedWrite]:
    if broker is not None:
        # One that there is not is told as with any other command.
        broker_requests.check_is_there(view, broker)
        if rate is not None and view.registry[broker].is_removed:
            # Another one may come under its number.
            raise OperatorError(
                f"broker {broker} was removed",
                hint=f"let it in first: {address.command('add', broker)}",
            )
        for_all = view.broker_overrides.get(ALL_BROKERS)
        if rate is None and for_all is not None and COPIES in for_all.values:
            # It would go on holding for this one.
            rate = NO_LIMIT
        return _write(view, str(broker), rate)
    writes = _write(view, ALL_BROKERS, rate)
    # What was set for one of them would go before it.
    for name in sorted(view.broker_overrides):
        if name != ALL_BROKERS:
            writes += _write(view, name, None)
    return writes


def _write(view: ClusterView, name: str, rate: int | None) -> list[GuardedWrite]:
    def rewrite(before: Mapping[str, str]) -> Mapping[str, str]:
        others = {one: text for one, text in before.items() if one != COPIES}
        return others if rate is None else others | {COPIES: str(rate)}

    return broker_requests.configure(view, name, rewrite)
