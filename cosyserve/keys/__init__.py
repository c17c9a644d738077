"""API keys: how they are made, kept in a file and presented, and where a service needs them."""
