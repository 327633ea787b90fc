"""Share groups at the leaders of partitions: sessions, acquiring and acknowledging records, dead letters."""
