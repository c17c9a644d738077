"""What engines of any service share: caches on disk, locks, fallback, identity and measured load;
nothing here knows gRPC.
"""
