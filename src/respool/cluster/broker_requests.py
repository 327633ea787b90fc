"""What an operator asks of brokers: drain one, take it out of the cluster, let it in again, give it other settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from respool.cluster import keys
from respool.cluster.enlarge import can_do_without
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView
from respool.model.broker_config import ALL_BROKERS, BROKER_RULES, BrokerConfig
from respool.model.cluster import BrokerOverrides, RegistryEntry
from respool.model.errors import (
    BrokerIdNotRegistered,
    InvalidReplicationFactor,
    InvalidRequest,
)
from respool.model.ids import BrokerId, TopicPartition

Overrides: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What a broker has to do with partitions."""

    replicas: int = 0
    leads: int = 0
    # Partitions on their way to it.
    coming: int = 0


def broker_load(view: ClusterView, broker: BrokerId) -> BrokerLoad:
    images = [image for _, _, image in view.partitions() if broker in image.replicas]
    return BrokerLoad(
        replicas=len(images),
        leads=sum(image.leader == broker for image in images),
        coming=sum(broker in image.adding for image in images),
    )


def unplaceable(view: ClusterView, broker: BrokerId) -> set[TopicPartition]:
    """Of the broker's partitions those that have a replica on each of the brokers that are left, and need as many."""
    return _without_taker(view, broker, is_needed=True)


def expendable(view: ClusterView, broker: BrokerId) -> set[TopicPartition]:
    """The same, of those that do with fewer."""
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
    """Send the broker's replicas elsewhere; it is done when it holds nothing.

    Raises:
        BrokerIdNotRegistered: there is no such broker.
        InvalidReplicationFactor: too few brokers would be left for some topic's replicas.
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
    """Take the broker out of the cluster. It may not register again until it is admitted.

    By force also one that holds replicas, if it does not run: they are made anew elsewhere, where somebody leads.

    Raises:
        BrokerIdNotRegistered: there is no such broker.
        InvalidRequest: it holds replicas.
    """
    entry = _entry(view, broker)
    held = broker_load(view, broker).replicas
    if held and not entry.is_removed and not (is_forced and not view.is_live(broker)):
        raise InvalidRequest(f"broker {broker} holds {held} replicas: drain it first")
    writes = _write(
        view, broker, entry, replace(entry, is_removed=True), f"broker {broker} is removed"
    )
    # Another one may come under its number.
    return [*writes, *configure(view, str(broker), lambda _: {})]


def admit(view: ClusterView, broker: BrokerId) -> list[GuardedWrite]:
    """Undo what drain and remove asked for. What has been moved stays where it is."""
    entry = _entry(view, broker)
    admitted = replace(entry, is_removed=False, is_drained=False)
    return _write(view, broker, entry, admitted, f"broker {broker} is admitted")


def configure(
    view: ClusterView, name: str, rewrite: Callable[[Overrides], Overrides]
) -> list[GuardedWrite]:
    """Give a broker, or without a name all of them, the settings that `rewrite` makes of those it has.

    Raises:
        InvalidRequest: it is no broker, or nothing that can be changed while one runs.
        InvalidConfig: a value cannot be.
    """
    # One that is away has settings, too.
    if name not in (ALL_BROKERS, *map(str, {*view.brokers, *view.registry})):
        raise InvalidRequest(f"there is no broker {name!r}")
    before = view.broker_overrides.get(name, BrokerOverrides(values={}))
    wanted = rewrite(before.values)
    # What is there already and is unknown here, a newer version has set.
    others = [one for one in wanted if one not in BROKER_RULES and one not in before.values]
    if others:
        raise InvalidRequest(
            f"{', '.join(others)}: not to be changed while a broker runs; what it reads when it starts is in its "
            f"settings file. While it runs can be changed: {', '.join(BROKER_RULES)}"
        )
    changed = {one: text for one, text in wanted.items() if before.values.get(one) != text}
    texts = BrokerConfig.parse(changed).as_text
    after = {one: texts[one] if one in changed else text for one, text in wanted.items()}
    if after == before.values:
        return []
    change = KeyChange(
        key=keys.broker_config_key(name),
        value=keys.encode_broker_config(after) if after else None,
        revision=before.revision,
        why=f"{f'broker {name} has' if name else 'brokers have'} other settings",
    )
    return in_writes([change], guard=view.guard)


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
