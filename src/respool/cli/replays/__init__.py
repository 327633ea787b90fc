"""`respool replay` and `respool dlq`."""
