"""`cosyserve accept`: every check of a host with a model directory, in one resumable run with one
report.
"""
