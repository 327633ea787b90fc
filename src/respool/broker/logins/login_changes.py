"""Changes of users and delegation tokens that clients ask for, written to the metadata store."""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

from respool.broker.metadata.catalog import Catalog, Decide, retry_on_conflict
from respool.cluster.access.user_requests import CredentialChange, change_user
from respool.cluster.guarded_write import GuardedWrite
from respool.model.errors import RequestError, RequestTimedOut
from respool.model.security.scram_credential import (
    ITERATIONS_MAX,
    SCRAM_HASHES,
    salted_password,
)
from respool.ports.metadata_store import StoreUnavailable
from respool.ports.offload import Offload


class LoginChanges:
    def __init__(self, catalog: Catalog, offload: Offload) -> None:
        self._catalog = catalog
        self._offload = offload

    async def change_users(
        self, changes: Mapping[str, Sequence[CredentialChange]]
    ) -> dict[str, RequestError | None]:
        """Change the credentials of each user, all or none of a user's; return the errors."""
        return {
            user: await _error_of(self.write(partial(change_user, changes=asked)))
            for user, asked in changes.items()
        }

    async def ensure_user(self, name: str, password: str, *, salt: bytes) -> None:
        """Create the user if there is none of this name. The salt is random.

        Raises:
            RequestError: the user cannot be stored.
        """
        if name in self._catalog.image.users:
            return
        changes = await self._offload.run(lambda: _credentials(name, password, salt))
        await self.write(
            lambda view: [] if name in view.image.users else change_user(view, changes)
        )

    async def write(self, decide: Decide) -> None:
        """
        Raises:
            RequestError: the change is refused, or the store does not answer.
        """
        try:
            await retry_on_conflict(self._catalog, decide, self._write_all)
        except StoreUnavailable as error:
            raise RequestTimedOut(f"the metadata store does not answer: {error}") from error

    async def _write_all(self, writes: Sequence[GuardedWrite]) -> None:
        for one in writes:
            await self._catalog.write(one)


def _credentials(name: str, password: str, salt: bytes) -> list[CredentialChange]:
    return [
        CredentialChange(
            user=name,
            mechanism=mechanism,
            salted_password=salted_password(
                mechanism, password, salt=salt, iterations=ITERATIONS_MAX
            ),
            salt=salt,
            iterations=ITERATIONS_MAX,
        )
        for mechanism in SCRAM_HASHES
    ]


async def _error_of(change: Awaitable[None]) -> RequestError | None:
    try:
        await change
    except RequestError as error:
        return error
    return None
