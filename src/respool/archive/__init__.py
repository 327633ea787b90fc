"""Pure decisions of the archive: its contents, the next upload, deletion, and the bytes of its objects."""
