"""What the services measure: the names, how they are counted, and how they are read."""
