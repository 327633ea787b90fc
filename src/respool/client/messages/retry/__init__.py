"""Retries and dead letters of a consumer group."""
