"""Random numbers of the operating system."""

import secrets
from uuid import UUID, uuid4


class SystemRandomSource:
    def uuid(self) -> UUID:
        return uuid4()

    def below(self, limit: int) -> int:
        return secrets.randbelow(limit)
