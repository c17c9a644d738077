"""A long measurement in parts: each a process of its own, each done once for the same machine,
versions and source.
"""
