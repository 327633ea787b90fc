"""The settings of brokers and groups: describe and alter them through brokers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from respool.client.kafka import configs
from respool.client.kafka.configs import ConfigResource, ConfigSetting, ConfigSource
from respool.model.operator_errors import NotFound, UsageError
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import client_errors_translated

_SOURCES = {
    int(ConfigSource.TOPIC): "topic",
    int(ConfigSource.DYNAMIC_BROKER): "broker",
    int(ConfigSource.DYNAMIC_DEFAULT_BROKER): "brokers",
    int(ConfigSource.STATIC_BROKER): "start",
    int(ConfigSource.DEFAULT): "default",
    int(ConfigSource.GROUP): "group",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTarget:
    # Of a broker or of a group.
    resource: ConfigResource
    # A broker's number, or a group; empty: all brokers.
    name: str

    @classmethod
    def broker(cls, number: int | None) -> Self:
        return cls(resource=ConfigResource.BROKER, name="" if number is None else str(number))

    @classmethod
    def group(cls, name: str) -> Self:
        return cls(resource=ConfigResource.GROUP, name=name)

    def __str__(self) -> str:
        return f"{self.resource.name.lower()} {self.name}" if self.name else "all brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSetting:
    name: str
    # None: it is not shown, because it is a secret.
    value: str | None
    # Where the value comes from: broker and brokers (changed while running, for one or for all), group, start (the
    # broker's file, variables and options), default.
    source: str
    is_read_only: bool


def describe_settings(admin: ClusterAdmin, target: ConfigTarget) -> list[DescribedSetting]:
    """Return the settings, sorted by name. Of all brokers: those that were changed for all of them.

    Raises:
        OperatorError
    """
    _check_broker(admin, target)
    with client_errors_translated():
        found = admin.cluster.retrying(
            lambda: configs.describe_configs(admin.cluster, target.resource, [target.name])
        )
    return [_described(found[target.name][name]) for name in sorted(found[target.name])]


def alter_settings(
    admin: ClusterAdmin,
    target: ConfigTarget,
    *,
    settings: Mapping[str, str],
    unset: Sequence[str],
) -> None:
    """Set some settings, and let the defaults of others apply again; all of it or nothing.

    Raises:
        OperatorError
    """
    _check_broker(admin, target)
    if unset:
        _check_names(unset, _known_names(admin, target))
    with client_errors_translated():
        configs.alter_configs(
            admin.cluster, target.resource, target.name, values=settings, deleted=unset
        )


def _described(setting: ConfigSetting) -> DescribedSetting:
    return DescribedSetting(
        name=setting.name,
        value=setting.value,
        source=_SOURCES.get(setting.source, f"source_{setting.source}"),
        is_read_only=setting.is_read_only,
    )


def _check_broker(admin: ClusterAdmin, target: ConfigTarget) -> None:
    """Raises:
    NotFound: there is no such broker.
    """
    if target.resource is not ConfigResource.BROKER or not target.name:
        return
    brokers = sorted(admin.cluster.brokers)
    if int(target.name) not in brokers:
        raise NotFound(
            f"there is no broker {target.name}",
            hint=f"running brokers: {', '.join(map(str, brokers))}",
        )


def _known_names(admin: ClusterAdmin, target: ConfigTarget) -> list[str]:
    if target.resource is ConfigResource.BROKER and not target.name:
        # The settings changed for all brokers are not all that could be changed.
        target = ConfigTarget.broker(min(admin.cluster.brokers))
    return [one.name for one in describe_settings(admin, target)]


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Raises:
    UsageError: a name is not a setting; brokers ignore unknown names, as Kafka does.
    """
    for name in names:
        if name not in known:
            alike = get_close_matches(name, known, n=1)
            hint = f"did you mean {alike[0]}?" if alike else ""
            raise UsageError(f"--unset {name}: there is no such setting", hint=hint)
