"""The protocols in which callers converse with the gateway: their messages, and what is due."""
