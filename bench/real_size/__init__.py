"""Random weights of the published sizes."""
