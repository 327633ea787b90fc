"""The operating system's dice."""

import secrets
from uuid import UUID, uuid4


class SystemDice:
    def uuid(self) -> UUID:
        return uuid4()

    def below(self, limit: int) -> int:
        return secrets.randbelow(limit)
