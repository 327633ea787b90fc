"""The settings of one room, out of the operator's."""

import dataclasses
from typing import TypeVar

from respool.cluster.view import ClusterSettings
from respool.coordination.groups.group_settings import GroupSettings
from respool.coordination.transactions.transaction_settings import TransactionSettings
from respool.model.broker_config import BrokerConfig
from respool.model.settings import Settings

Chosen = TypeVar("Chosen", GroupSettings, TransactionSettings, ClusterSettings)


def settings_for(kind: type[Chosen], settings: Settings) -> Chosen:
    """A room's settings that are the operator's to set have the same names there, and are checked already."""
    names = [one.name for one in dataclasses.fields(kind) if hasattr(settings, one.name)]
    return kind(**{name: getattr(settings, name) for name in names})


def broker_config_of(settings: Settings) -> BrokerConfig:
    """What the settings file says of that which can be changed while the broker runs."""
    return BrokerConfig(respool_copy_bytes_per_s_max=settings.copy_bytes_per_s_max)
