"""TLS in gRPC: ports, channels that are renewed, and which callers are let in."""
