"""The interface of a token engine, and the backends in this process."""
