"""Kafka's error codes; for packages that have no other use of kio."""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode"]
