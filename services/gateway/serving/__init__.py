"""How the gateway meets its callers: connections, what they may hold, and how it leaves."""
