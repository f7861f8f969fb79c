"""Hostile and damaged files through the window: a state or a tree, never a box, never the end of the program."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QMessageBox
from pytestqt.qtbot import QtBot

from tensormorph.gui.settings import Settings
from tensormorph.gui.window import MainWindow
from tests import hostile_inputs

hostile_inputs.SCALE = 0.1
CASES = (
    "st_zero_bytes", "st_header_len_2_63", "st_header_bad_utf8", "st_dup_tensor", "st_dup_tensor_same_range",
    "st_json_huge_int", "st_shape_2_60", "st_rank_5000", "st_offsets_overlap", "st_trailing_bytes", "st_dtype_unknown",
    "st_metadata_10mb", "st_no_tensors", "st_nan_payloads", "st_sparse_1tib", "st_deep_names", "st_nasty_names",
    "st_lone_surrogate", "st_html_page", "st_hash_collisions", "ix_missing_shard", "ix_traversal", "ix_not_a_map",
    "fs_fifo_in_dir", "fs_many_files", "fs_name_not_utf8", "fs_deep_dirs", "pt_stride_zero_bomb", "pt_dup_data_pkl",
    "pk_payload_deep_inside", "pk_deep_list", "pk_billion_laughs",
)  # fmt: skip


def _made(case: str, folder: Path) -> Path:
    make: Any = hostile_inputs.CASES[case][1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile warns of the equal names that are wanted
        path: Path = make(folder)[0]
    return path


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_file_leaves_the_window_alive(case: str, qtbot: QtBot, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = _made(case, folder)
    window = MainWindow(Settings(tmp_path / "settings"))  # with the real readers and the real picture
    qtbot.addWidget(window)
    with qtbot.waitExposed(window):
        window.show()
    ended: list[object] = []
    window.opener.opened.connect(lambda *a: ended.append(a))
    window.opener.failed.connect(lambda *a: ended.append(a))
    window.open_path(str(path))
    qtbot.waitUntil(lambda: bool(ended), timeout=20_000)
    checkpoint = window.selection.checkpoint
    if checkpoint is not None:
        # Choose what is there, readable or not, and let the picture and the Inspector have their say.
        for name in [*list(checkpoint.tensors)[:4], *list(checkpoint.unreadable)[:2]]:
            window.selection.choose(name)
            qtbot.wait(20)
    assert window.isVisible()
    assert not [w for w in QApplication.topLevelWidgets() if isinstance(w, QMessageBox) and w.isVisible()]
    assert not hostile_inputs.EXECUTED(folder)
    window.close()


def test_there_are_at_least_twenty_of_them() -> None:
    assert len(CASES) >= 20
