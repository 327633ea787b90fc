"""The broker's own settings: one frozen value of nested groups, checked as a whole.

`SETTINGS` lists every setting by its flat name, which is used by the settings file, by `RESPOOL_<NAME>` in the
environment and by flags; `Settings.from_flat` and `Settings.flat` convert. Topic settings have Kafka's names: see
`topic_config.py`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, get_type_hints

from respool.model.addresses import is_loopback
from respool.model.archiving.archive_settings import ArchiveSettings
from respool.model.broker_config import BrokerConfig
from respool.model.cluster_settings import (
    ControllerSettings,
    EtcdSettings,
    MembershipSettings,
    ReplicationSettings,
)
from respool.model.coordinator_settings import (
    GroupSettings,
    TopicSettings,
    TransactionSettings,
)
from respool.model.errors import SettingsError
from respool.model.etcd_endpoints import host_of
from respool.model.security.access_settings import AccessSettings
from respool.model.security.acl import AccessMode
from respool.model.security.listener_settings import (
    LISTENER_KEYS,
    LISTENERS_MAX,
    ListenerSettings,
    listener,
)
from respool.model.security.principal import CLIENT_LISTENER
from respool.model.security.security_settings import SecuritySettings
from respool.model.server_settings import (
    BrokerFetchSettings,
    DelaySettings,
    LogOutputSettings,
    MetricsSettings,
    NetworkSettings,
    StorageSettings,
)
from respool.model.setting_fields import SettingField, check_lows, fields_of, setting
from respool.model.share.share_broker_settings import (
    ShareBrokerSettings,
    ShareCoordinatorSettings,
)
from respool.model.topic_config import TopicConfig


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = setting("./respool-data", "The data folder; one broker per folder.")
    broker_id: int = setting(1, "The id of this broker in the cluster.", low=0)
    rack: str = setting("", "The rack or availability zone of this broker.")
    stop_grace_ms: int = setting(
        10_000, "How long a stopping broker waits for requests in progress.", low=0
    )
    network: NetworkSettings = field(default_factory=NetworkSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    metadata_store: EtcdSettings = field(default_factory=EtcdSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    log_output: LogOutputSettings = field(default_factory=LogOutputSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    fetch: BrokerFetchSettings = field(default_factory=BrokerFetchSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    delays: DelaySettings = field(default_factory=DelaySettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    shares: ShareBrokerSettings = field(default_factory=ShareBrokerSettings)
    share_states: ShareCoordinatorSettings = field(default_factory=ShareCoordinatorSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    # The listeners beside that of `listen`, by name, with what they set for themselves.
    listener_tables: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    # Warnings about settings that were given under an old name, to be logged when the broker starts.
    renamed: tuple[str, ...] = field(default=(), repr=False, compare=False)
    # Lines of a Kafka broker's settings that have no effect, to be logged when the broker starts.
    accepted: tuple[str, ...] = field(default=(), repr=False, compare=False)
    # The settings that were given, also those with the default value.
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def __post_init__(self) -> None:
        check_lows(self)
        self._check_listeners()
        self._check_metrics()
        self._check_etcd()

    def _check_metrics(self) -> None:
        metrics = self.metrics
        if metrics.address is None or is_loopback(metrics.address[0]) or self.network.insecure:
            return
        if not metrics.token_file or not metrics.certificate_file:
            raise SettingsError(
                f"metrics_listen = {metrics.listen!r} is open to other machines: give metrics_token_file and "
                "metrics_certificate_file, or allow it on a trusted network with insecure = true"
            )

    def _check_listeners(self) -> None:
        """
        Raises:
            SettingsError: a listener is not possible, or open to everyone without `insecure`.
        """
        listeners = self.listeners
        if len(listeners) > LISTENERS_MAX:
            raise SettingsError(f"there are {len(listeners)} listeners, limit {LISTENERS_MAX}")
        taken: dict[tuple[str, int], str] = {}
        for one in listeners:
            if not self.network.insecure:
                one.check_open()
            one.check_advertised()
            address = one.listen_address
            if address[1] and address in taken:
                raise SettingsError(
                    f"the listeners {taken[address]} and {one.name} have one address: {one.listen}"
                )
            taken[address] = one.name
        if any(
            "OAUTHBEARER" in one.sasl_enabled_mechanisms
            for one in listeners
            if one.protocol.has_login
        ):
            self.security.check_identity_provider(insecure=self.network.insecure)
        name = self.inter_broker_listener
        between = next((one for one in listeners if one.name == name), None)
        if between is None:
            known = ", ".join(one.name for one in listeners)
            raise SettingsError(
                f"inter_broker_listener_name = {name!r} is not a listener; known are: {known}"
            )
        if self.metadata_store.addresses and between.is_authenticated and not self.security.brokers:
            raise SettingsError(
                f"broker_principals is empty, and brokers connect to each other by the listener {name}, which "
                "authenticates: name the principals of all brokers, such as User:broker"
            )

    @property
    def inter_broker_listener(self) -> str:
        return self.security.inter_broker_listener_name or CLIENT_LISTENER

    @cached_property
    def listeners(self) -> tuple[ListenerSettings, ...]:
        """All listeners; that of `listen` first."""
        values = self.flat()
        # A listener's own limits are not the broker's.
        common = {name: values[name] for name in LISTENER_KEYS if name in values} | {
            "connections_max": 0,
            "connection_creation_rate_max": 0,
        }
        found = [listener(CLIENT_LISTENER, common)]
        alone = {
            name: value for name, value in common.items() if name not in ("listen", "advertised")
        }
        for name, own in self.listener_tables.items():
            table = {**alone, "listen": "", "advertised": "", **own}
            found.append(listener(name, table))
        return tuple(found)

    def _check_etcd(self) -> None:
        etcd = self.metadata_store
        if not etcd.addresses:
            values = self.flat()
            for name, item in SETTINGS.items():
                if item.needs_etcd and values[name] != item.default:
                    raise SettingsError(f"{name} needs etcd")
        etcd.check_login()
        for url in etcd.endpoints:
            if (
                url.startswith("http:")
                and not is_loopback(host_of(url))
                and not self.network.insecure
            ):
                raise SettingsError(
                    f"etcd = {etcd.addresses!r}: {url} is another machine, and the connection is not encrypted, "
                    "passwords included. Use https, or allow it on a trusted network with insecure = true (--insecure)"
                )

    @classmethod
    def from_flat(
        cls,
        *,
        topic: Mapping[str, str] | None = None,
        listener: Mapping[str, Mapping[str, object]] | None = None,
        **values: Any,
    ) -> Self:
        """Settings from flat names, with defaults for all others; `topic` has the defaults of topic settings,
        `listener` the listeners beside that of `listen`.

        Raises:
            SettingsError: a value is invalid, or values contradict each other.
        """
        return cls().with_flat(topic=topic, listener=listener, **values)

    def with_flat(
        self,
        *,
        topic: Mapping[str, str] | None = None,
        listener: Mapping[str, Mapping[str, object]] | None = None,
        **values: Any,
    ) -> Self:
        """These settings with some of them changed, by flat name.

        Raises:
            SettingsError: as `from_flat`.
        """
        by_group: dict[str | None, dict[str, Any]] = {}
        for name, value in values.items():
            item = SETTINGS[name]
            by_group.setdefault(item.group, {})[item.attribute] = value
        if topic is not None:
            by_group.setdefault("topics", {})["overrides"] = topic
        own = by_group.pop(None, {})
        if listener is not None:
            own["listener_tables"] = listener
        changed = {
            group: dataclasses.replace(getattr(self, group), **inner)
            for group, inner in by_group.items()
            if group is not None
        }
        return dataclasses.replace(self, **own, **changed)

    def flat(self) -> dict[str, Any]:
        """All settings by flat name."""
        return {
            name: getattr(self if item.group is None else getattr(self, item.group), item.attribute)
            for name, item in SETTINGS.items()
        }

    @property
    def topic_defaults(self) -> TopicConfig:
        return self.topics.defaults

    @cached_property
    def broker_defaults(self) -> BrokerConfig:
        """The defaults of the run-time configuration, from the settings file."""
        return BrokerConfig(
            respool_copy_bytes_per_s_max=self.replication.copy_bytes_per_s_max,
            respool_authorization=AccessMode(self.access.authorization),
        )


def _all_settings() -> dict[str, SettingField]:
    kinds = get_type_hints(Settings)
    found = fields_of(Settings)
    for item in dataclasses.fields(Settings):
        if dataclasses.is_dataclass(kinds[item.name]):
            found += fields_of(kinds[item.name], item.name)
    assert len({item.name for item in found}) == len(found), "two settings with one name"
    return {item.name: item for item in found}


SETTINGS: Mapping[str, SettingField] = _all_settings()


def is_secret(name: str) -> bool:
    """True if the value of the setting must never be shown."""
    return name in SETTINGS and SETTINGS[name].is_secret
