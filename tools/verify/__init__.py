"""The services compared with the dumps of the reference implementation, stage by stage."""
