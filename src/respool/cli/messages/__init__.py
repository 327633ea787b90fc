"""`respool produce` and `respool consume`: messages in and out, their formats, and readers of topics."""
