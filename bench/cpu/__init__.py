"""Everything that is measured on a machine without a GPU, in one command."""
