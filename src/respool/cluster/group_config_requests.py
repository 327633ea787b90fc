"""Clients' requests to change the configuration of a group."""

from collections.abc import Callable, Mapping

from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView
from respool.model.cluster import StoredOverrides
from respool.model.config_rules import parse_each
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import InvalidConfig, InvalidRequest
from respool.model.group_config import GROUP_RULES, GroupConfig, check_group_config
from respool.model.internal_topics import is_internal
from respool.model.share.share_broker_settings import ShareBrokerSettings
from respool.ports.metadata_store import KEY_BYTES_MAX

# In UTF-8: what is left of a key of the metadata store.
GROUP_ID_BYTES_MAX = KEY_BYTES_MAX - len(keys.GROUP_CONFIGS)


def configure_group(
    view: ClusterView,
    group_id: str,
    rewrite: Callable[[Mapping[str, str]], Mapping[str, str]],
    *,
    settings: GroupSettings,
    shares: ShareBrokerSettings | None = None,
) -> list[GuardedWrite]:
    """Rewrite the configuration of a group, which need not exist yet.

    Raises:
        InvalidRequest: the group id is empty or too long for a key of the metadata store.
        InvalidConfig: a setting is unknown, or a value is invalid or outside of the broker's limits.
    """
    if not group_id:
        raise InvalidRequest("Group name must not be empty")
    byte_count = len(group_id.encode())
    if byte_count > GROUP_ID_BYTES_MAX:
        raise InvalidRequest(
            f"a group id of {byte_count} bytes can have no configuration, limit {GROUP_ID_BYTES_MAX}"
        )
    before = view.image.stored_group_overrides.get(group_id, StoredOverrides(values={}))
    wanted = rewrite(before.values)
    # What a newer version stored stays, and blocks no change.
    own = {name: text for name, text in wanted.items() if not _is_foreign(name, text, before)}
    config = GroupConfig.parse(own)
    shares = shares or ShareBrokerSettings()
    check_group_config(config, settings, shares)
    _check_dead_letter_topic(config, view, shares)
    texts = {
        name: str(value)
        for name in own
        for value in parse_each({name: own[name]}, GROUP_RULES, of="group").values()
    }
    after = {**wanted, **texts}
    if after == before.values:
        return []
    change = KeyChange(
        key=keys.group_config_key(group_id),
        value=keys.encode_overrides(after) if after else None,
        revision=before.revision,
        why=f"group {group_id!r} has other settings",
    )
    return in_writes([change], guard=view.guard)


def _check_dead_letter_topic(
    config: GroupConfig, view: ClusterView, shares: ShareBrokerSettings
) -> None:
    """A mistake is reported when it is made, and not when the first letter is due."""
    name = config.errors_deadletterqueue_topic_name
    if not name:
        return
    problem = None
    topic = view.image.topics.get(name)
    if is_internal(name):
        problem = "is an internal topic"
    elif name in view.image.views:
        problem = "is a view, which cannot be written"
    elif topic is None:
        if shares.errors_deadletterqueue_auto_create_topics_enable:
            return
        problem = "does not exist; create it with errors.deadletterqueue.group.enable=true"
    elif not topic.config.errors_deadletterqueue_group_enable:
        problem = "takes no dead letters: set errors.deadletterqueue.group.enable=true for it"
    if problem is not None:
        raise InvalidConfig(f"errors.deadletterqueue.topic.name: topic {name} {problem}")


def _is_foreign(name: str, text: str, before: StoredOverrides) -> bool:
    if before.values.get(name) != text:
        return False
    try:
        GroupConfig.parse({name: text})
    except InvalidConfig:
        return True
    return False
