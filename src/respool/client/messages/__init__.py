"""One message at a time, on confluent-kafka: `Producer`, `Consumer`, their asyncio versions, and delivery
guarantees."""
