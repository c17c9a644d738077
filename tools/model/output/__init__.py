"""What the commands share: progress lines, options, exit statuses, and directories that appear
complete or not at all.
"""
