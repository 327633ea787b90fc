"""Maps Kafka's error codes to error classes, for the replies of other brokers."""

from respool.model.coordinator_errors import NotCoordinator
from respool.model.errors import NotLeader, RequestError
from respool.model.ids import BrokerId
from respool.model.security.security_errors import SecurityDisabled


class UnknownError(RequestError):
    """A reply with an error code that is unknown here."""

    code = -1


def _by_code() -> dict[int, type[RequestError]]:
    return {one.code: one for one in _all_under(RequestError) if "code" in vars(one)}


def _all_under(kind: type[RequestError]) -> list[type[RequestError]]:
    return [one for child in kind.__subclasses__() for one in (child, *_all_under(child))]


ERRORS_BY_CODE = _by_code()
# All modules with errors must have been imported.
assert ERRORS_BY_CODE[NotLeader.code] is NotLeader
assert ERRORS_BY_CODE[NotCoordinator.code] is NotCoordinator
assert ERRORS_BY_CODE[SecurityDisabled.code] is SecurityDisabled


def error_for(code: int, *, by: BrokerId) -> RequestError | None:
    """The error for a code; None for success."""
    if code == 0:
        return None
    return ERRORS_BY_CODE.get(code, UnknownError)(f"broker {by} answered with error {code}")
