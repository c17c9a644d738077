"""TLS in gRPC: ports, channels that are made anew, and which callers are let in."""
