"""Retries and dead letters: what the client, the command line and applications of other clients agree on."""
