"""The interface of a token engine, and the backends that run in this process."""
