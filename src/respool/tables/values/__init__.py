"""Messages' values as columns: JSON, Avro, Protobuf."""
