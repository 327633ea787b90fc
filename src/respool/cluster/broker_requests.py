"""Operators' requests about brokers: drain, remove, admit again, and change the configuration."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from respool.cluster import keys
from respool.cluster.access.authorization_mode import check_mode
from respool.cluster.enlarge import can_do_without
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView
from respool.model.broker_config import ALL_BROKERS, AUTHORIZATION
from respool.model.cluster import RegistryEntry, StoredOverrides
from respool.model.dynamic_config import check_is_dynamic, parse_changes
from respool.model.errors import (
    BrokerIdNotRegistered,
    BrokerIsLive,
    InvalidReplicationFactor,
    InvalidRequest,
)
from respool.model.ids import BrokerId, TopicPartition
from respool.model.quantities import counted
from respool.model.stored_topic_config import understood
from respool.model.topic_config import TopicConfig
from respool.model.topic_defaults import SAME_IN_CLUSTER, SETTING_OF_DEFAULT, changed_defaults

Overrides: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """The replicas and leaderships of a broker."""

    replicas: int = 0
    leads: int = 0
    # Replicas that are being copied to the broker.
    coming: int = 0


def broker_load(view: ClusterView, broker: BrokerId) -> BrokerLoad:
    images = [image for _, _, image in view.partitions() if broker in image.replicas]
    return BrokerLoad(
        replicas=len(images),
        leads=sum(image.leader == broker for image in images),
        coming=sum(broker in image.adding for image in images),
    )


def unplaceable(view: ClusterView, broker: BrokerId) -> set[TopicPartition]:
    """The broker's partitions that cannot keep their replication factor: all other brokers have a replica already."""
    return _without_taker(view, broker, is_needed=True)


def expendable(view: ClusterView, broker: BrokerId) -> set[TopicPartition]:
    """Like `unplaceable`, but the partitions that may have fewer replicas."""
    return _without_taker(view, broker, is_needed=False)


def _without_taker(view: ClusterView, broker: BrokerId, *, is_needed: bool) -> set[TopicPartition]:
    candidates = view.candidates().keys() - {broker}
    return {
        TopicPartition(topic.name, number)
        for topic, number, image in view.partitions()
        if broker in image.target
        and candidates <= {*image.target}
        and is_needed != can_do_without(topic.name, broker, image.target, view)
    }


def drain(view: ClusterView, broker: BrokerId) -> list[GuardedWrite]:
    """Move the broker's replicas to other brokers; the broker is drained once it has none.

    Raises:
        BrokerIdNotRegistered: there is no such broker.
        InvalidReplicationFactor: too few brokers would remain for a topic's replication factor.
    """
    entry = _entry(view, broker)
    left = len(view.candidates().keys() - {broker})
    for topic, number, image in view.partitions():
        if (
            broker in image.target
            and len(image.target) > left
            and not can_do_without(topic.name, broker, image.target, view)
        ):
            are_left = f"{left} are left" if left != 1 else "1 is left"
            raise InvalidReplicationFactor(
                f"without broker {broker}, {are_left}, and {topic.name}-{number} has {len(image.target)} replicas"
            )
    return _write(
        view, broker, entry, replace(entry, is_drained=True), f"broker {broker} is drained"
    )


def remove(view: ClusterView, broker: BrokerId, *, is_forced: bool = False) -> list[GuardedWrite]:
    """Remove the stopped broker from the cluster. It may not register again until it is admitted.

    `is_forced` also removes a broker with replicas: these are copied again from the leaders.

    Raises:
        BrokerIsLive: the broker runs.
        BrokerIdNotRegistered: there is no such broker.
        InvalidRequest: the broker has replicas.
    """
    if view.is_live(broker):
        raise BrokerIsLive(f"broker {broker} runs: drain it, then stop it, then remove it")
    entry = _entry(view, broker)
    held = broker_load(view, broker).replicas
    if held and not entry.is_removed and not is_forced:
        raise InvalidRequest(f"broker {broker} has {counted(held, 'replica')}: drain it first")
    writes = _write(
        view, broker, entry, replace(entry, is_removed=True), f"broker {broker} is removed"
    )
    # Another broker may get this id.
    return [*writes, *configure(view, str(broker), lambda _: {})]


def admit(view: ClusterView, broker: BrokerId) -> list[GuardedWrite]:
    """Undo drain and remove. Replicas that have moved away do not return."""
    entry = _entry(view, broker)
    admitted = replace(entry, is_removed=False, is_drained=False)
    return _write(view, broker, entry, admitted, f"broker {broker} is admitted")


def configure(
    view: ClusterView,
    name: str,
    rewrite: Callable[[Overrides], Overrides],
    *,
    defaults: TopicConfig | None = None,
    super_users: Collection[str] = (),
) -> list[GuardedWrite]:
    """Rewrite the configuration of a broker, or of all brokers if the name is "".

    `defaults` are those of topics in the settings file of the broker that decides, and so are `super_users`.

    Raises:
        InvalidRequest: there is no such broker, or a setting cannot be changed at run time.
        InvalidConfig: a setting is unknown, a value is invalid, or values contradict each other.
    """
    # A broker that is down has a configuration, too.
    if name not in (ALL_BROKERS, *map(str, {*view.brokers, *view.registry})):
        raise InvalidRequest(f"there is no broker {name!r}")
    before = view.broker_overrides.get(name, StoredOverrides(values={}))
    wanted = rewrite(before.values)
    # A stored setting that is unknown here was set by a newer version.
    check_is_dynamic(one for one in wanted if one not in before.values)
    changed = {one: text for one, text in wanted.items() if before.values.get(one) != text}
    if name != ALL_BROKERS and len({*view.brokers, *view.registry}) > 1:
        _check_is_not_of_all(changed)
    after = {**wanted, **parse_changes(changed)}
    if after == before.values:
        return []
    _check_defaults(view, name, after, defaults or TopicConfig())
    if after.get(AUTHORIZATION) != before.values.get(AUTHORIZATION):
        check_mode(view, name, after.get(AUTHORIZATION), super_users=super_users)
    change = KeyChange(
        key=keys.broker_config_key(name),
        value=keys.encode_overrides(after) if after else None,
        revision=before.revision,
        why=f"{f'broker {name} has' if name else 'brokers have'} other settings",
    )
    return in_writes([change], guard=view.guard)


def _check_is_not_of_all(changed: Overrides) -> None:
    same = sorted(one for one in changed if SETTING_OF_DEFAULT.get(one) in SAME_IN_CLUSTER)
    if same:
        raise InvalidRequest(
            f"Broker-level {', '.join(same)} cannot be altered in a cluster: leader elections need the same value on "
            "all brokers. Alter the default of all brokers (--entity-default: an empty name), or the topic's own"
        )


def _check_defaults(view: ClusterView, name: str, after: Overrides, static: TopicConfig) -> None:
    """
    Raises:
        InvalidConfig: together with the other defaults of topics, these are not valid.
    """
    overrides = {one: stored.values for one, stored in view.broker_overrides.items()}
    of_all = {**overrides, name: after}.get(ALL_BROKERS, {})
    base = TopicConfig.parse(understood(changed_defaults(of_all)), base=static)
    if name != ALL_BROKERS:
        TopicConfig.parse(understood(changed_defaults(after)), base=base)


def check_is_there(view: ClusterView, broker: BrokerId) -> None:
    """
    Raises:
        BrokerIdNotRegistered: there is no such broker.
    """
    _entry(view, broker)


def _entry(view: ClusterView, broker: BrokerId) -> RegistryEntry:
    entry = view.registry.get(broker)
    if entry is None:
        raise BrokerIdNotRegistered(f"there is no broker {broker}")
    return entry


def _write(
    view: ClusterView, broker: BrokerId, before: RegistryEntry, after: RegistryEntry, why: str
) -> list[GuardedWrite]:
    if after == before:
        return []
    change = KeyChange(
        key=keys.registry_key(broker),
        value=keys.encode_registry(after),
        revision=before.revision,
        why=why,
    )
    return in_writes([change], guard=view.guard)
