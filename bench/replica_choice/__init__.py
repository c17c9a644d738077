"""How evenly several orchestrators spread their calls over the replicas of a stage."""
