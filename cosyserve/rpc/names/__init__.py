"""Names of services: looked up in the hosts file and in DNS, and followed while they change."""
