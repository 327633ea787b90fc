"""Changes of users and delegation tokens that clients ask for, written to the metadata store."""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

from respool.broker.metadata.catalog import Catalog, Decide, retry_on_conflict
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.user_requests import CredentialChange, change_user
from respool.model.errors import RequestError, RequestTimedOut
from respool.ports.metadata_store import StoreUnavailable


class LoginChanges:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def change_users(
        self, changes: Mapping[str, Sequence[CredentialChange]]
    ) -> dict[str, RequestError | None]:
        """Change the credentials of each user, all or none of a user's; return why that was refused."""
        return {
            user: await _error_of(self.write(partial(change_user, changes=asked)))
            for user, asked in changes.items()
        }

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


async def _error_of(change: Awaitable[None]) -> RequestError | None:
    try:
        await change
    except RequestError as error:
        return error
    return None
