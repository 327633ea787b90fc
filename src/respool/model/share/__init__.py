"""Share groups (KIP-932): their settings, and errors in replies."""
