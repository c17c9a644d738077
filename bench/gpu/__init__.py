"""Everything that is measured on one GPU, in one command."""
