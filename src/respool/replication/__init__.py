"""Deciding code of replication: what a partition's leader counts, and what its followers cut off and fetch."""
