"""The broker's own worlds serve here too."""

from broker.conftest import running_broker, start_broker, world

__all__ = ["running_broker", "start_broker", "world"]
