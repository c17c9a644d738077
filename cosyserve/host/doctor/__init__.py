"""Examines a machine and reports what keeps it from serving."""
