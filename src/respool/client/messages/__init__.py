"""Clients for one message at a time, built on confluent-kafka: `Producer`, `Consumer`, their asyncio versions, and
delivery guarantees."""
