"""The cluster's metadata for a command: looked at as a whole, and changed by what the cluster's own rules decide.

A command is no broker: it has no lease, and its writes carry the guards of what it saw, the controller's seat among
them. Where somebody was faster, it looks and decides again.
"""

import asyncio
import logging
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from respool.cli import options
from respool.cli.errors import CliError, ExitCode, NotFound, UsageError
from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView, TopicRules, read_view
from respool.model.errors import BrokerIdNotRegistered, RequestError, SettingsError
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.node.config import load_settings
from respool.node.etcd import connect_to_etcd
from respool.ports.metadata_store import GuardFailed, MetadataStore, StoreUnavailable

T = TypeVar("T")

# A leader changes an ISR now and then, which a write of many partitions runs into.
TRIES_MAX = 20
MIN_ISR = "min.insync.replicas"


class EtcdUnreachable(CliError):
    """etcd does not answer."""

    exit_code = ExitCode.UNREACHABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """All of the cluster, as it was at one moment."""

    cluster: str
    # Who decides; None while nobody does.
    controller: BrokerId | None
    view: ClusterView

    def check_is_there(self) -> None:
        """Of a cluster that was never there nothing can be said, least of all that it is well.

        Raises:
            NotFound: no broker has ever registered under this name.
        """
        if not self.view.registry and not self.view.brokers and not self.view.topics:
            raise NotFound(
                f"there is no cluster {self.cluster!r} in this etcd: no broker has ever registered there",
                hint="give the name that its brokers have (their setting `cluster`) with --cluster",
            )


class ClusterStore:
    def __init__(
        self, store: MetadataStore, settings: Settings, *, found_by: Sequence[str] = ()
    ) -> None:
        self._store = store
        self._settings = settings
        self._found_by = found_by

    async def look(self) -> Sight:
        """Read everything.

        Raises:
            EtcdUnreachable: etcd does not answer.
        """
        try:
            values = (await self._store.snapshot("")).values
        except StoreUnavailable as error:
            raise EtcdUnreachable(str(error)) from error
        seat = values.get(keys.CONTROLLER)
        return Sight(
            cluster=self._settings.cluster,
            controller=None if seat is None else keys.decode_controller(seat.value),
            view=read_view(
                values,
                # 0 guards that nobody has taken the seat meanwhile.
                controller_revision=0 if seat is None else seat.revision,
                rules_of=self._rules_of,
            ),
        )

    async def change(self, decide: Callable[[ClusterView], list[GuardedWrite]]) -> ClusterView:
        """Write what is decided; return what it was decided on.

        Raises:
            NotFound, CliError: the cluster's rules forbid it; nothing was changed.
            EtcdUnreachable: etcd does not answer, and whether it was written is unknown.
        """
        for _ in range(TRIES_MAX):
            view = (await self.look()).view
            try:
                writes = decide(view)
            except BrokerIdNotRegistered as error:
                raise NotFound(str(error), hint=self._brokers_there_are(view)) from error
            except RequestError as error:
                raise CliError(str(error)) from error
            try:
                for write in writes:
                    await self._store.transact(
                        guards=write.guards, puts=write.puts, deletes=write.deletes
                    )
            except GuardFailed:
                continue
            except StoreUnavailable as error:
                raise EtcdUnreachable(
                    f"{error}; whether it was written is not known", hint="run it again"
                ) from error
            return view
        raise CliError(
            f"the cluster changed {TRIES_MAX} times while this was being written", hint="try again"
        )

    def _rules_of(self, overrides: Mapping[str, str]) -> TopicRules:
        # Nothing else of a topic's settings matters here, and a newer broker may know others.
        default = self._settings.topic_defaults.min_insync_replicas
        return TopicRules(min_isr=int(overrides.get(MIN_ISR, default)))

    def _brokers_there_are(self, view: ClusterView) -> str:
        known = ", ".join(str(one) for one in sorted(view.registry))
        if not known:
            return "there are none yet"
        return f"there are {known}: {command('status', found_by=self._found_by)}"


def run(
    settings: Settings,
    work: Callable[[ClusterStore], Awaitable[T]],
    *,
    found_by: Sequence[str] = (),
) -> T:
    """Do the work with the store these settings lead to; `found_by` are the flags that led to them, for hints.

    Raises:
        EtcdUnreachable: etcd does not answer.
        CliError: it answers, but not to us.
        UsageError: the settings cannot work.
    """
    # What is noteworthy about etcd stands in the brokers' logs; here it would stand between the lines of a table.
    logging.basicConfig(level=logging.ERROR)
    return asyncio.run(_run(settings, work, found_by))


async def _run(
    settings: Settings, work: Callable[[ClusterStore], Awaitable[T]], found_by: Sequence[str]
) -> T:
    try:
        store = await connect_to_etcd(settings)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    except StoreUnavailable as error:
        from respool.drivers.etcd_failures import EtcdRefused

        if isinstance(error, EtcdRefused):
            # It has answered, and its words say what to do.
            raise CliError(str(error)) from error
        said = where_it_was_said(settings.etcd, found_by, os.environ)
        raise EtcdUnreachable(str(error), hint=f"is this where it is? {said}") from error
    try:
        return await work(ClusterStore(store, settings, found_by=found_by))
    finally:
        await store.close()


def load(
    *,
    etcd: str | None,
    cluster: str | None,
    config: Path | None,
    insecure: bool,
    pairs: list[str] | None,
) -> Settings:
    """The settings by which a command finds the cluster: flags, the environment, and a broker's own file."""
    flags: dict[str, object] = dict(options.parse_assignments(pairs))
    given = {"etcd": etcd, "cluster": cluster, "insecure": insecure or None}
    for name, value in given.items():
        if value is not None:
            if name in flags:
                raise UsageError(f"{name} is given by a flag and by --set")
            flags[name] = value
    if config is not None and not config.is_file():
        raise NotFound(f"there is no settings file {str(config)!r}")
    try:
        settings = load_settings(file=config, environ=os.environ, flags=flags)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if not settings.etcd:
        raise UsageError(
            "which cluster? Its brokers meet in etcd, and where that is was not said",
            hint="give --etcd HOST:PORT, or --config with a broker's settings file, or set RESPOOL_ETCD",
        )
    return settings


def flags_as_given(
    *,
    etcd: str | None,
    cluster: str | None,
    config: Path | None,
    insecure: bool,
    pairs: list[str] | None,
) -> list[str]:
    """The same again, for a command that somebody is told to type."""
    flags: list[str] = []
    for name, value in {"--config": config, "--etcd": etcd, "--cluster": cluster}.items():
        if value is not None:
            flags += [name, str(value)]
    if insecure:
        flags.append("--insecure")
    for pair in pairs or ():
        flags += ["--set", pair]
    return flags


def command(*words: str, found_by: Sequence[str]) -> str:
    """A command on the same cluster, for somebody to type."""
    return shlex.join(["respool", "cluster", *words, *found_by])


def where_it_was_said(etcd: str, found_by: Sequence[str], environ: Mapping[str, str]) -> str:
    """The flag, variable or file that says where etcd is, as it is said there; the first of them counts."""
    if "--etcd" in found_by or any(one.startswith("etcd=") for one in found_by):
        return f"--etcd {etcd}"
    if "RESPOOL_ETCD" in environ:
        return f"RESPOOL_ETCD={etcd}"
    if "--config" in found_by:
        return f'etcd = "{etcd}" in {found_by[found_by.index("--config") + 1]}'
    return f'etcd = "{etcd}"'
