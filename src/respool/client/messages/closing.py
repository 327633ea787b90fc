"""Leaving `with` and `async with` of consumers and producers."""

from collections.abc import Iterator
from contextlib import contextmanager

from respool.client.messages.errors import ClientError


@contextmanager
def noted_on(error: BaseException | None, what: str) -> Iterator[None]:
    """Close something. An error of that becomes a note on the caller's `error`, which takes precedence."""
    try:
        yield
    except ClientError as also:
        if error is None:
            raise
        error.add_note(f"and when the {what} was closed: {also}")
