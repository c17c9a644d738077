"""What the commands share: progress lines, exit statuses, and directories that appear complete or
not at all.
"""
