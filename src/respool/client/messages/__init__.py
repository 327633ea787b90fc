"""One message at a time, on confluent-kafka: `Producer`, `Consumer`, their async twins, and a promise of delivery."""
