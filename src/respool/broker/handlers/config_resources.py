"""What settings belong to, as the config APIs name it: a type and a name."""

from collections import Counter
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any

from respool.broker.broker import Broker
from respool.broker.handlers.error_fields import error_fields
from respool.broker.outcome import Reply
from respool.model.errors import InvalidRequest, RequestError
from respool.wire.codec import Request, encode_reply


class ResourceType(IntEnum):
    """Kafka's numbers. Only topics and brokers have settings here."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_is_this_broker(name: str, broker: Broker) -> None:
    """A broker is named by its id; the empty name stands for all brokers.

    Raises:
        InvalidRequest: it is another broker, or no number.
    """
    if name not in ("", str(broker.id)):
        raise InvalidRequest(f"this is broker {broker.id}, not {name!r}")


async def change_each(
    request: Request,
    *,
    change_topic: Callable[[Any], Awaitable[None]],
    change_broker: Callable[[Any], Awaitable[None]],
) -> Reply:
    """Change the settings of each resource in the request and answer for each, in their order.

    A resource is changed as a whole or not at all.
    """
    resources = request.body.resources
    times_named = Counter((one.resource_type, one.resource_name) for one in resources)
    responses = []
    for one in resources:
        error: RequestError | None = None
        try:
            if times_named[one.resource_type, one.resource_name] > 1:
                raise InvalidRequest(f"{one.resource_name!r} is in the request more than once")
            _check_names(one)
            if one.resource_type == ResourceType.TOPIC:
                await change_topic(one)
            elif one.resource_type == ResourceType.BROKER:
                await change_broker(one)
            else:
                raise InvalidRequest(f"resources of type {one.resource_type} have no settings here")
        except RequestError as refused:
            error = refused
        responses.append(
            {
                **error_fields(error),
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
            }
        )
    return [encode_reply(request, {"throttle_time": 0, "responses": responses})]


def _check_names(resource: Any) -> None:
    times_set = Counter(config.name for config in resource.configs)
    twice = [name for name, times in times_set.items() if times > 1]
    if twice:
        raise InvalidRequest(f"more than one value for {', '.join(twice)}")
