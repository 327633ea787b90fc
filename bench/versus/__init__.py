"""Respool beside Apache Kafka, and others, on the same machine in the same run: `make bench-kafka`."""
