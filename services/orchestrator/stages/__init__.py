"""Clients of the frontend, the LLM and token2wav: calls with failover to another replica."""
