"""The keys of an identity provider, fetched in the background."""

from typing import Protocol


class IdentityKeys(Protocol):
    @property
    def document(self) -> bytes | None:
        """The keys as they were last published; None: never fetched. A new object whenever they were fetched."""
        ...

    def refresh_soon(self) -> None:
        """A token names an unknown key: fetch the keys again, if that was not just done. Returns at once."""
        ...
