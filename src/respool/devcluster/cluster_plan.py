"""Plans `respool cluster up`: the number of brokers, where each stores data and listens, and their settings."""

import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from respool.devcluster.secure_cluster import ClusterSecurity, refuse_open_start
from respool.model.addresses import format_address, parse_address
from respool.model.errors import SettingsError
from respool.model.operator_errors import OperatorError, UsageError
from respool.model.settings import Settings
from respool.node.config import PREFIX, load_settings, write_example

# Settings that differ per broker, and etcd's address, which has a flag of its own.
OWN = ("data", "listen", "advertised", "broker_id", "rack", "metrics_listen", "etcd")
FLAGS_OF_OWN = {
    "advertised": "give --advertised, a host without a port",
    "etcd": "give --etcd",
    "rack": "give --racks, with the name of each",
}
PASSWORD_VARIABLE = f"{PREFIX}ETCD_PASSWORD"
PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    id: int
    listen: str
    # Empty: the address of `listen` is advertised.
    advertised: str
    # Empty: the broker has no rack.
    rack: str
    data: Path
    log: Path

    @property
    def own_flags(self) -> dict[str, object]:
        """The flags of `respool serve` for this broker, beside the common settings."""
        flags = {
            "broker-id": self.id,
            "data": self.data,
            "listen": self.listen,
            "advertised": self.advertised,
            "rack": self.rack,
        }
        return {name: value for name, value in flags.items() if value != ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    folder: Path
    brokers: tuple[BrokerPlan, ...]
    # Brokers that have data in this folder and are not started.
    left_out: tuple[int, ...]
    # The settings that all brokers share.
    settings: Settings
    # The shared settings for another number of brokers.
    settings_for: Callable[[int], Settings]
    # None: brokers let everybody in.
    security: ClusterSecurity | None = None

    @property
    def file(self) -> Path:
        return self.folder / "cluster.toml"

    def with_etcd(self, address: str) -> "ClusterPlan":
        """With an etcd started by us, of any version: nothing of value is stored there."""
        settings = self.settings.with_flat(etcd=address, etcd_allow_old_versions=True)
        return replace(self, settings=settings)

    def without(self, numbers: Collection[int]) -> "ClusterPlan":
        """Leave out these brokers; the others keep their ids and addresses."""
        brokers = tuple(one for one in self.brokers if one.id not in numbers)
        settings = self.settings_for(len(brokers)).with_flat(
            etcd=self.settings.metadata_store.addresses,
            etcd_allow_old_versions=self.settings.metadata_store.allow_old_versions,
        )
        return replace(self, brokers=brokers, settings=settings)

    def etcd_before(self) -> str:
        """The etcd address in the file of the last run; empty if it has none."""
        try:
            said = tomllib.loads(self.file.read_text()).get("etcd", "")
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            return ""
        return said if isinstance(said, str) else ""

    def write_file(self) -> None:
        """Write the shared settings to a file, by which other commands find the cluster."""
        said = "# Written by `respool cluster up` at every start. Each broker's own settings are on its command line.\n"
        self.file.write_text(said + write_example(self.settings))

    @property
    def environ(self) -> dict[str, str]:
        """The brokers' environment: settings come from the file, except for secrets, which must not be in it."""
        environ = {name: value for name, value in os.environ.items() if name[:8] != PREFIX}
        if self.settings.metadata_store.password:
            environ[PASSWORD_VARIABLE] = self.settings.metadata_store.password
        return environ


def plan_cluster(
    *,
    broker_count: int,
    folder: Path,
    listen: str,
    advertised: str | None = None,
    racks: Sequence[str] = (),
    etcd: str | None,
    given: Mapping[str, str],
    secure: bool = False,
) -> ClusterPlan:
    """Check all arguments and plan the brokers; write nothing yet. `advertised` is a host without a port.

    Raises:
        UsageError: an argument is invalid, or arguments contradict each other.
    """
    for name in OWN:
        if name in given:
            hint = FLAGS_OF_OWN.get(name, "")
            raise UsageError(f"--set {name}: it cannot be the same for all brokers", hint=hint)
    folder = folder.absolute()
    if folder.exists() and not folder.is_dir():
        raise OperatorError(f"{folder} is not a folder", hint="choose another with --data")
    security = None
    if secure:
        host, _ = _address(listen)
        security = ClusterSecurity(folder, listen_host=host, advertised=advertised)
        given = security.settings(given)
    else:
        refuse_open_start(folder, given)
    settings_for = partial(
        _common_settings, listen=listen, advertised=advertised, etcd=etcd, given=given
    )
    settings = settings_for(broker_count)
    host, port = settings.network.listen_address
    if port + broker_count - 1 > PORT_MAX:
        raise UsageError(f"--listen {listen}: there are not {broker_count} ports from there on")
    return ClusterPlan(
        folder=folder,
        brokers=tuple(
            BrokerPlan(
                id=number,
                listen=format_address(host, port and port + number - 1),
                # Port 0 stands for the port on which the broker listens.
                advertised=format_address(advertised, 0) if advertised else "",
                rack=racks[(number - 1) % len(racks)] if racks else "",
                data=folder / f"broker-{number}",
                log=folder / f"broker-{number}.log",
            )
            for number in range(1, broker_count + 1)
        ),
        left_out=tuple(one for one in _brokers_with_data(folder) if one > broker_count),
        settings=settings,
        settings_for=settings_for,
        security=security,
    )


def _address(listen: str) -> tuple[str, int]:
    try:
        return parse_address("--listen", listen)
    except SettingsError as error:
        raise UsageError(str(error)) from error


def _common_settings(
    broker_count: int,
    *,
    listen: str,
    advertised: str | None,
    etcd: str | None,
    given: Mapping[str, str],
) -> Settings:
    # The environment may name a production etcd, which development brokers must not join.
    not_ours = {PREFIX + name.upper() for name in OWN}
    environ = {name: value for name, value in os.environ.items() if name not in not_ours}
    flags: dict[str, object] = {**_defaults(broker_count), **given, "listen": listen}
    # A placeholder for the etcd that is started later: settings that only concern etcd have no effect.
    flags["etcd"] = etcd or "localhost"
    if advertised:
        flags["advertised"] = format_address(advertised, 0)
    _address(listen)
    try:
        return load_settings(file=None, environ=environ, flags=flags)
    except SettingsError as error:
        raise UsageError(str(error)) from error


def _defaults(broker_count: int) -> dict[str, object]:
    """Three replicas if there are three brokers, so that one of them may fail."""
    defaults: dict[str, object] = {"default_replication_factor": min(3, broker_count)}
    if broker_count >= 3:
        defaults["topic.min.insync.replicas"] = "2"
    return defaults


def _brokers_with_data(folder: Path) -> list[int]:
    found = [re.fullmatch(r"broker-(\d+)", one.name) for one in folder.glob("broker-*")]
    return sorted(int(one[1]) for one in found if one)
