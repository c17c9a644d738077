"""How busy the replicas of a service are: counted where they serve, reported to their callers, and
weighed where one is chosen.
"""
