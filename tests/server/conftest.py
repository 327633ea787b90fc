"""The simulated broker of the broker's own tests serves here too."""

from broker.conftest import running_broker, start_broker

__all__ = ["running_broker", "start_broker"]
