"""Mutated inputs against the parts that read what strangers send: `make fuzz`."""
