"""What a listener hears of a speech, and load on a server as its listeners would hear it, as
`cosyserve bench` measures it.
"""
