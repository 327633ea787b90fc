"""The broker settings that can be changed while the broker runs: replication throttles, and defaults of topics."""

from collections.abc import Iterable, Mapping

from respool.model.broker_config import BROKER_RULES
from respool.model.config_rules import ConfigRule, parse_each
from respool.model.errors import InvalidConfig, InvalidRequest
from respool.model.kafka_settings.kafka_lines import kafka_line
from respool.model.setting_fields import ALIASES, KAFKA_NAMES, TOPIC_DEFAULT_NAMES
from respool.model.settings import SETTINGS
from respool.model.topic_config import CONFIG_RULES, WITHOUT_DEFAULT
from respool.model.topic_defaults import TOPIC_DEFAULT_RULES

DYNAMIC_RULES: Mapping[str, ConfigRule] = {**BROKER_RULES, **TOPIC_DEFAULT_RULES}


def parse_changes(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides as they are shown and stored, such as `true` for `TRUE`.

    Raises:
        InvalidConfig: a name is unknown or a value is invalid; the message names it.
    """
    texts = {}
    for name, text in overrides.items():
        [value] = parse_each({name: text}, DYNAMIC_RULES, of="broker").values()
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def shown_name(setting: str) -> str:
    """The name under which Kafka's tools show a setting of the broker."""
    return KAFKA_NAMES.get(setting) or "respool." + setting.replace("_", ".")


def check_is_dynamic(names: Iterable[str]) -> None:
    """
    Raises:
        InvalidRequest: some of these settings are read when a broker starts.
        InvalidConfig: one of them is unknown.
    """
    static = []
    for name in names:
        if name in DYNAMIC_RULES:
            continue
        if not _is_known(name):
            _raise_unknown(name)
        static.append(name)
    if static:
        raise InvalidRequest(
            f"Cannot update these configs dynamically: [{', '.join(static)}]; they are read when a broker starts, from "
            "its settings file, its environment and its command line"
        )


def _is_known(name: str) -> bool:
    return name in _STATIC or name in _READ_BY_HAND or kafka_line(name) is not None


def _raise_unknown(name: str) -> None:
    if name in WITHOUT_DEFAULT:
        raise InvalidConfig(f"{name} is a topic's setting, and not a broker's")
    if name in CONFIG_RULES:
        default = TOPIC_DEFAULT_NAMES.get(name, name)
        raise InvalidConfig(f"{name} is a topic's setting; the default of all topics is {default}")
    parse_each({name: ""}, DYNAMIC_RULES, of="broker")


# Kafka's settings that need more than a name: see `node/kafka_properties.py`.
_READ_BY_HAND = frozenset(
    {
        "authorizer.class.name",
        "broker.id",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "log.dir",
        "process.roles",
    }
)
_STATIC = frozenset({*ALIASES, *map(shown_name, SETTINGS)})
