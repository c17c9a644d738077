"""Mutated inputs against the parts that read what callers send: `make fuzz`."""
