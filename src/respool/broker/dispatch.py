"""Dispatches a request to the handler that is registered for its API."""

import importlib
import pkgutil
from collections.abc import Mapping

from respool.broker import handlers
from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import REGISTERED, Handler
from respool.broker.outcome import Outcome
from respool.wire.api_table import API_TABLE
from respool.wire.codec import Request

# A module registers its handler when it is imported.
for _module in pkgutil.walk_packages(handlers.__path__, f"{handlers.__name__}."):
    importlib.import_module(_module.name)

HANDLERS: Mapping[int, Handler] = {api: one.handler for api, one in REGISTERED.items()}
assert HANDLERS.keys() == API_TABLE.keys(), "an announced API has no handler"


def handle(request: Request, broker: Broker) -> Outcome:
    """Start a request and return its outcome.

    Raises:
        CloseConnection: no reply can express the error.
    """
    quotas = broker.quotas
    if not quotas.is_on:
        return HANDLERS[request.api.key](request, broker)
    if not quotas.begin(request):
        return HANDLERS[request.api.key](request, broker)
    began_s = broker.clock.stopwatch_s()
    outcome = HANDLERS[request.api.key](request, broker)
    return quotas.timed(request, outcome, broker.clock.stopwatch_s() - began_s)
