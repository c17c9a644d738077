"""Checks of the Helm chart and of the manifests that are made of it."""
