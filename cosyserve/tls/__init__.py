"""TLS: certificate files that may be exchanged at any time, and who is allowed to call."""
