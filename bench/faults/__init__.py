"""What listeners hear while processes of the services are lost, frozen, slow, replaced, added and
removed.
"""
