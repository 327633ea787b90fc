"""The service: reads a topic, writes files, commits them with their positions."""
