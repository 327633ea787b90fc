"""Pure: what the archive holds, what is uploaded next, what may be deleted, and the bytes of its objects."""
