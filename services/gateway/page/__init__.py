"""The page at `/`: its HTML, styles and scripts, and how they are served."""
