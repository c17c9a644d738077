"""Shared by the engines of all services: caches on disk, locks, fallback, identity and measured
load; nothing here knows gRPC.
"""
