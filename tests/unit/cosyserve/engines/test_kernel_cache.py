"""Where compiled kernels are kept: a directory for each key, safe to share, pruned, and never that
of another user.
"""

import json
import logging
import os
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cosyserve.engines import kernel_cache
from cosyserve.engines.kernel_cache import Key, keep_kernels

KEY = Key(gpu="NVIDIA H200", capability=(9, 0), torch="2.11.0", triton="3.6.0", driver="570.1")


def test_each_key_has_its_directory(tmp_path: Path) -> None:
    changed = [replace(KEY, **{name: "other"}) for name in ("gpu", "torch", "triton", "driver")]
    changed.append(replace(KEY, capability=(9, 1)))
    kept = {keep_kernels(key, {"COSYSERVE_CACHE_DIR": str(tmp_path)}) for key in (KEY, *changed, KEY)}
    assert len(kept) == 6
    assert all(directory.parent == tmp_path / "kernels" for directory in kept)
    mine = keep_kernels(KEY, {"COSYSERVE_CACHE_DIR": str(tmp_path)})
    assert mine.name.startswith("nvidia-h200-")
    assert json.loads((mine / "key.json").read_text())["driver"] == "570.1"
    assert [file.name for file in mine.iterdir()] == ["key.json"]
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700


def test_triton_gets_the_directory_and_no_other_setting_counts(tmp_path: Path) -> None:
    environ = {"COSYSERVE_CACHE_DIR": str(tmp_path)}
    kept = keep_kernels(KEY, environ)
    assert environ["TRITON_CACHE_DIR"] == str(kept)
    for other in ("/elsewhere", str(tmp_path / "triton"), str(kept), ""):
        named = {"COSYSERVE_CACHE_DIR": str(tmp_path), "TRITON_CACHE_DIR": other}
        assert keep_kernels(KEY, named) == kept
        assert named["TRITON_CACHE_DIR"] == str(kept)
    at_home = {"HOME": str(tmp_path), "TRITON_CACHE_DIR": "/elsewhere"}
    assert keep_kernels(KEY, at_home).is_relative_to(tmp_path / ".cache" / "cosyserve")


def test_the_users_cache_is_the_default_and_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept = keep_kernels(KEY, {"HOME": str(tmp_path)})
    finally:
        os.umask(before)
    assert kept.parent == tmp_path / ".cache" / "cosyserve" / "kernels"
    assert [stat.S_IMODE(made.stat().st_mode) for made in (kept, kept.parent, kept.parent.parent)] == [0o700] * 3
    assert keep_kernels(KEY, {"HOME": "/nowhere", "XDG_CACHE_HOME": str(tmp_path / "x")}).is_relative_to(
        tmp_path / "x" / "cosyserve"
    )


def test_where_nothing_can_be_kept_there_is_a_warning_and_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    environ = {"COSYSERVE_CACHE_DIR": str(tmp_path / "file")}
    directory = keep_kernels(KEY, environ)
    assert directory.is_dir()
    assert environ["TRITON_CACHE_DIR"] == str(directory)
    assert "they are compiled again at each start. COSYSERVE_CACHE_DIR names a directory" in caplog.text
    directory.rmdir()


@pytest.mark.parametrize("spoil", ["writable", "replaceable", "link"])
def test_code_is_not_loaded_from_a_directory_that_others_may_write_or_replace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: str
) -> None:
    kept = keep_kernels(KEY, {"COSYSERVE_CACHE_DIR": str(tmp_path)})
    if spoil == "link":
        kept.rename(tmp_path / "moved")
        kept.symlink_to(tmp_path / "moved")
    else:
        (kept if spoil == "writable" else kept.parent).chmod(0o777)
    elsewhere = keep_kernels(KEY, {"COSYSERVE_CACHE_DIR": str(tmp_path)})
    assert elsewhere != kept
    assert "a link, or writable by all" in caplog.text
    elsewhere.rmdir()


def test_without_a_home_it_lies_where_no_other_user_can_have_been_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours = tmp_path / f"cosyserve-cache-{os.geteuid()}"
    assert keep_kernels(KEY, {}).is_relative_to(ours)
    ours.chmod(0o777)
    assert not keep_kernels(KEY, {}).is_relative_to(ours)


def test_what_cannot_be_kept_goes_with_the_process(tmp_path: Path) -> None:
    program = (
        "from cosyserve.engines.kernel_cache import Key, keep_kernels\n"
        "kept = keep_kernels(Key(gpu='gpu', capability=(9, 0), torch='1'), {'COSYSERVE_CACHE_DIR': "
        "'/dev/null'})\n"
        "(kept / 'kernel').touch()\nprint(kept)"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    kept = Path(subprocess.check_output([sys.executable, "-c", program], env=environ, text=True).strip())
    assert (kept.parent, kept.exists()) == (tmp_path, False)


def test_what_no_start_has_used_for_long_is_deleted_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    environ = {"COSYSERVE_CACHE_DIR": str(tmp_path)}
    old, young = (
        keep_kernels(replace(KEY, torch="old"), dict(environ)),
        keep_kernels(replace(KEY, torch="young"), dict(environ)),
    )
    foreign = tmp_path / "kernels" / "foreign"
    foreign.mkdir()
    long_ago = time.time() - (kernel_cache.UNUSED_DAYS + 1) * 86_400
    for directory in (old, foreign):
        os.utime(directory, (long_ago, long_ago))
    mine = keep_kernels(KEY, dict(environ))
    assert sorted(tmp_path.joinpath("kernels").iterdir()) == sorted([young, foreign, mine])
    assert f"are deleted: {old.name}" in caplog.text


def test_many_starts_at_once_share_one_directory(tmp_path: Path) -> None:
    program = (
        "import sys, json\nfrom cosyserve.engines.kernel_cache import Key, keep_kernels\n"
        "for _ in range(200):\n"
        "    kept = keep_kernels(Key(gpu='gpu', capability=(9, 0), torch='1'), {'COSYSERVE_CACHE_DIR': "
        "sys.argv[1]})\n"
        "    json.loads((kept / 'key.json').read_text())\n"
    )
    starts = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(3)]
    assert [start.wait(60) for start in starts] == [0, 0, 0]
    (kept,) = (tmp_path / "kernels").iterdir()
    assert [file.name for file in kept.iterdir()] == ["key.json"]
