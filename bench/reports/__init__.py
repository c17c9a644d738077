"""Figures as tables and plots."""
