"""What tests do to etcd beyond what a store does: compact it, and make users and roles."""

# ruff: noqa: RUF009 - the functions declare fields, as dataclasses.field does.

from dataclasses import dataclass
from typing import Self

from respool.drivers.etcd_member import EtcdIdentity, EtcdMember
from respool.drivers.etcd_messages import Empty, Method
from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_protobuf import flag, number, one, raw, text
from respool.drivers.etcd_tls import EtcdTls

READ_WRITE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactAsk:
    revision: int = number(1)
    physical: bool = flag(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAsk:
    name: str = text(1)
    password: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAsk:
    name: str = text(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRoleAsk:
    user: str = text(1)
    role: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    kind: int = number(1)
    key: bytes = raw(2)
    range_end: bytes = raw(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePermissionAsk:
    role: str = text(1)
    permission: Permission | None = one(2, Permission)


COMPACT = Method(path="/etcdserverpb.KV/Compact", request=CompactAsk, response=Empty)
USER_ADD = Method(path="/etcdserverpb.Auth/UserAdd", request=UserAsk, response=Empty)
USER_PASSWORD = Method(
    path="/etcdserverpb.Auth/UserChangePassword", request=UserAsk, response=Empty
)
USER_GRANT = Method(path="/etcdserverpb.Auth/UserGrantRole", request=UserRoleAsk, response=Empty)
ROLE_ADD = Method(path="/etcdserverpb.Auth/RoleAdd", request=RoleAsk, response=Empty)
ROLE_GRANT = Method(
    path="/etcdserverpb.Auth/RoleGrantPermission", request=RolePermissionAsk, response=Empty
)
AUTH_ENABLE = Method(path="/etcdserverpb.Auth/AuthEnable", request=Empty, response=Empty)


class EtcdAdmin:
    """Talks to the first endpoint. Use it as a context."""

    def __init__(self, options: EtcdOptions) -> None:
        url = options.endpoints[0]
        tls = EtcdTls(options) if url.startswith("https:") else None
        self._member = EtcdMember(url, options, tls, EtcdIdentity())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._member.close()

    async def compact(self, revision: int) -> None:
        await self._member.call(
            COMPACT, CompactAsk(revision=revision, physical=True), timeout_ms=5_000
        )

    async def add_user(self, name: str, password: str, *, role: str) -> None:
        ask = self._member.call
        await ask(USER_ADD, UserAsk(name=name, password=password), timeout_ms=5_000)
        await ask(USER_GRANT, UserRoleAsk(user=name, role=role), timeout_ms=5_000)

    async def change_password(self, name: str, password: str) -> None:
        await self._member.call(
            USER_PASSWORD, UserAsk(name=name, password=password), timeout_ms=5_000
        )

    async def add_role(self, name: str, *, prefix: str = "") -> None:
        """A role that may read and write under the prefix; without one, a role of no keys."""
        await self._member.call(ROLE_ADD, RoleAsk(name=name), timeout_ms=5_000)
        if prefix:
            key = prefix.encode()
            permission = Permission(
                kind=READ_WRITE, key=key, range_end=key[:-1] + bytes([key[-1] + 1])
            )
            await self._member.call(
                ROLE_GRANT, RolePermissionAsk(role=name, permission=permission), timeout_ms=5_000
            )

    async def enable_authentication(self) -> None:
        await self._member.call(AUTH_ENABLE, Empty(), timeout_ms=5_000)


async def compact(options: EtcdOptions, revision: int) -> None:
    async with EtcdAdmin(options) as admin:
        await admin.compact(revision)
