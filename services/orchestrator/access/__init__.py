"""Who calls, by API key or token: what a caller may do and how much, and what it has used."""
