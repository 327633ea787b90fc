"""The table of handlers: each registers itself with the versions that it serves and the rights that it needs.

```python
@serves(Api.HEARTBEAT, versions=(0, 4), rights=(READ_GROUP,))
def heartbeat(request: Request, broker: Broker) -> Outcome: ...
```
To add an API: a row in `wire/api_table.py` and a module in `handlers/<subject>/` with a
handler registered like this one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from respool.broker.broker import Broker
from respool.broker.handlers.support.rights import AnyRight, Right
from respool.broker.outcome import Outcome
from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request

Handler: TypeAlias = Callable[[Request, Broker], Outcome]
HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    handler: Handler
    # Both inclusive.
    versions: tuple[int, int]
    # All of them are needed; none: any client may send the request.
    rights: tuple[Right | AnyRight, ...]


REGISTERED: dict[int, Registration] = {}


def serves(
    api: Api, *, versions: tuple[int, int], rights: tuple[Right | AnyRight, ...]
) -> Callable[[HandlerT], HandlerT]:
    """Register a handler for an API. The function itself is unchanged."""

    def register(handler: HandlerT) -> HandlerT:
        spec = API_TABLE[api]
        # ApiVersions replies with the table's versions, so a handler has to serve exactly those.
        assert versions == (spec.version_min, spec.version_max), (spec, versions)
        assert api not in REGISTERED, f"{api.name} has two handlers"
        REGISTERED[api] = Registration(handler=handler, versions=versions, rights=rights)
        return handler

    return register
