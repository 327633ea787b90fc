"""A member of a classic group."""

from collections.abc import Container

from respool.coordination.groups.group_records import StoredMember
from respool.coordination.groups.group_requests import JoinGroup, Protocol

# A session without a deadline: the member was loaded from the log and its session has not started.
NEVER_MS = 2**63 - 1


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "expires_at_ms",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[Protocol, ...],
        assignment: bytes = b"",
        is_new: bool = False,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        # In order of preference. Never empty.
        self.protocols = protocols
        # The assignment of the last synced generation; empty before the first.
        self.assignment = assignment
        # The member has not completed a rebalance yet. It sends no heartbeats while it waits for its first one, so it
        # is removed after a while even though it has a waiting request.
        self.is_new = is_new
        self.expires_at_ms = NEVER_MS

    @classmethod
    def joining(cls, request: JoinGroup, *, member_id: str) -> "ClassicMember":
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=max(0, request.rebalance_timeout_ms),
            protocols=request.protocols,
            is_new=True,
        )

    @classmethod
    def from_stored(cls, stored: StoredMember, *, protocol_name: str) -> "ClassicMember":
        return cls(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            # The record has only the chosen protocol. The others arrive with the member's next join.
            protocols=(Protocol(protocol_name, stored.subscription),),
            assignment=stored.assignment,
        )

    def to_stored(self, *, protocol_name: str, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscription=self.metadata_for(protocol_name),
            assignment=assignment,
        )

    def metadata_for(self, protocol_name: str) -> bytes:
        """The member's metadata for a protocol that it supports."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise AssertionError(f"{self.member_id} does not support {protocol_name}")

    def supports(self, protocol_name: str) -> bool:
        return any(protocol.name == protocol_name for protocol in self.protocols)

    def vote(self, candidates: Container[str]) -> str:
        """The member's most preferred protocol among the candidates; it supports at least one of them."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise AssertionError(f"{self.member_id} supports none of {candidates}")
