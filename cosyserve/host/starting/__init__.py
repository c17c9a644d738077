"""Plans, builds and measures engines before services start."""
