"""The orchestrator as several processes behind one port, which count as one service."""
