"""What TLS and client certificates cost a request."""
