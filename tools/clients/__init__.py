"""Foreign clients, unmodified and in environments of their own, against a running server."""
