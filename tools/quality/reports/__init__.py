"""All measures of the voices, their limits, and the report."""
