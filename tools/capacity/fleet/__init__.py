"""Pods of every stage, their requests and what scales them, on a virtual clock."""
