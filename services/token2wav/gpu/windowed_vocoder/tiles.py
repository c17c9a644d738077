"""Tiles of the vocoder's kernels: by kind of product and channels of its output, (maximum rows of
the batch, tile).

On an H200 in float16 the fastest of all that were tried, each kind of launch by itself.
"""

from services.token2wav.gpu.device.launcher import MANY, Tile, Tiles

SOUND_TILES: Tiles = {
    "excitation": ((MANY, Tile(256, 0)),),
    "pitch": (
        (130, Tile(16, 32, 64, 4, 4)),
        (1000, Tile(32, 32, 64)),
        (2000, Tile(64, 32, 32)),
        (MANY, Tile(32, 64, 32)),
    ),
    "sound pre": (
        (144, Tile(64, 32, 64, 4, 4)),
        (407, Tile(32, 32, 128, 4, 4)),
        (MANY, Tile(64, 64, 64, 8, 3)),
    ),
    "sound up 256": (
        (401, Tile(32, 64, 64, 4, 4)),
        (MANY, Tile(64, 64, 64, 8, 3)),
    ),
    "sound up 128": ((MANY, Tile(64, 64, 64, 8, 3)),),
    "sound up 64": (
        (4086, Tile(32, 32, 128, 4, 4)),
        (11556, Tile(128, 32, 64, 4, 3)),
        (MANY, Tile(64, 64, 64, 8, 3)),
    ),
    "sound down 256": ((MANY, Tile(64, 64, 64)),),
    "sound down 128": ((MANY, Tile(64, 64, 64)),),
    "sound down 64": ((MANY, Tile(64, 64, 64)),),
    "sound source 256": (
        (1254, Tile(64, 32, 128, 4, 4, described=True)),
        (3546, Tile(64, 128, 128, 4, 3, described=True)),
        (7093, Tile(64, 256, 64, 4, 3, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound source 128": (
        (4474, Tile(64, 64, 64, 4, 4, described=True)),
        (12654, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound source 64": (
        (12498, Tile(64, 64, 64, 4, 4, described=True)),
        (MANY, Tile(128, 64, 64, 4, 3, described=True)),
    ),
    "sound block 256": (
        (1110, Tile(64, 32, 128, 4, 4, described=True)),
        (6279, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound block 128": (
        (4330, Tile(64, 128, 128, 4, 3, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound block 64": (
        (12258, Tile(128, 64, 64, 4, 4, described=True)),
        (MANY, Tile(128, 64, 64, 4, 3, described=True)),
    ),
    "sound mean 256": (
        (1110, Tile(64, 32, 128, 4, 3)),
        (3139, Tile(64, 128, 128, 4, 3, described=True)),
        (6279, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound mean 128": (
        (4330, Tile(64, 64, 128, 4, 3)),
        (12247, Tile(64, 128, 64, 4, 4, described=True)),
        (MANY, Tile(64, 128, 64, 4, 3, described=True)),
    ),
    "sound mean 64": (
        (12258, Tile(64, 64, 64, 8, 3)),
        (MANY, Tile(128, 64, 64, 4, 3, described=True)),
    ),
    "sound post": ((MANY, Tile(64, 32, 64)),),
}
EXACT_SOUND_TILES: Tiles = dict[str, tuple[tuple[int, Tile], ...]].fromkeys(
    SOUND_TILES, ((MANY, Tile(16, 32, 32, 4, 2)),)
)
"""For float32 without matrix units."""
