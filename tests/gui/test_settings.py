"""The settings file: what is damaged falls back alone, what is written is whole, nothing of the user's is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tensormorph.gui.settings import MOST_RECENT, Recent, Settings, when
from tests import hostile_inputs

OWN = sorted(name for name in hostile_inputs.CASES if name.startswith("app_settings"))


def test_there_are_damaged_settings_to_try() -> None:
    assert len(OWN) >= 5


@pytest.mark.parametrize("case", OWN)
def test_damaged_settings_give_defaults_and_the_damaged_file_survives(case: str, tmp_path: Path) -> None:
    path, _ = hostile_inputs.CASES[case][1](tmp_path)  # type: ignore[misc]
    before = path.read_bytes() if path.is_file() else None
    settings = Settings(tmp_path)
    assert settings.values.theme == "system"
    assert settings.values.recent == []
    settings.values.theme = "dark"
    saved = settings.save()
    if path.is_dir():
        assert not saved
        assert "cannot be saved" in settings.trouble
        return
    assert saved
    assert Settings(tmp_path).values.theme == "dark"
    if case != "app_settings_types":  # that one is a settings file, with single bad values
        assert settings.file.with_name("settings.json.bad").read_bytes() == before


def test_single_bad_values_fall_back_alone(tmp_path: Path) -> None:
    stored: dict[str, Any] = {
        "theme": "dark", "panels": {"outliner": 400, "bottom": "big", "inspector": -3}, "geometry": 7,
        "shard_borders": "no",
        "recent": [{"path": "/a"}, {"path": 3}, "x", {"path": "/b", "errors": "many", "opened_at": 1e400}],
        "later": {"kept": True},
    }  # fmt: skip
    (tmp_path / "settings.json").write_text(json.dumps(stored))
    settings = Settings(tmp_path)
    assert settings.values.theme == "dark"
    assert settings.values.panels == {"outliner": 400}
    assert [entry.path for entry in settings.values.recent] == ["/a", "/b"]
    assert settings.values.recent[1].errors == 0
    assert settings.values.shard_borders
    assert settings.save()
    assert json.loads((tmp_path / "settings.json").read_text())["later"] == {"kept": True}


def test_paths_that_are_no_utf8_survive(tmp_path: Path) -> None:
    path = os.fsdecode(b"/data/m\xff\xfe.safetensors")
    settings = Settings(tmp_path)
    settings.remember(Recent(path))
    assert settings.save()
    (entry,) = Settings(tmp_path).values.recent
    assert os.fsencode(entry.path) == b"/data/m\xff\xfe.safetensors"


def test_recent_holds_each_path_once_newest_first_and_not_too_many(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    for i in range(MOST_RECENT + 5):
        settings.remember(Recent(f"/{i}"))
    settings.remember(Recent("/7"))
    paths = [entry.path for entry in settings.values.recent]
    assert paths[0] == "/7"
    assert len(paths) == len(set(paths)) == MOST_RECENT


@pytest.mark.parametrize("call", ["fsync", "replace", "open", "write"])
def test_a_failed_save_leaves_the_old_file_whole(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(tmp_path)
    settings.values.theme = "light"
    assert settings.save()
    before = settings.file.read_bytes()
    settings.values.theme = "dark"

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        assert not settings.save()
    assert "No space left on device" in settings.trouble
    assert settings.file.read_bytes() == before
    assert os.listdir(tmp_path) == ["settings.json"]


def test_the_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORMORPH_CONFIG_DIR", str(tmp_path / "here"))
    settings = Settings()
    assert settings.save()
    assert (tmp_path / "here" / "settings.json").is_file()


def test_moments_are_said_as_people_say_them() -> None:
    noon = 1_790_000_000.0 - 1_790_000_000.0 % 86400 + 43200
    assert when(noon, noon).startswith("today ")
    assert when(noon - 86400, noon) == "yesterday"
    assert when(0) == ""
    assert when(noon - 400 * 86400, noon)[-4:].isdigit()
