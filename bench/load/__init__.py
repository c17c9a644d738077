"""What the commands of the bench share: their options, load on the services, and engines without
services.
"""
