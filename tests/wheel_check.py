"""Build the wheel, install it in an empty environment, and use it there: run by `make test`, not by pytest.

The checkout hides two faults that only a built wheel shows: a resource that is not packed, and an import that only the
development environment satisfies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("PySide6", "pyqtgraph", "numba", "torch", "cmap", "h5py")
LIST = """
import runpy, sys
sys.argv = ["tensormorph", "ls", "--json", sys.argv[1]]
try:
    runpy.run_module("tensormorph", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print([name for name in %r if name in sys.modules], file=sys.stderr)
"""


def main() -> int:
    """Return 0 if the wheel works by itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run([sys.executable, "-m", "build", "--quiet", "--outdir", str(folder / "dist"), str(ROOT)])
        wheel = next((folder / "dist").glob("*.whl"))
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
        _run([str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)])
        # From another folder and with a bare environment: the checkout must not answer for the wheel.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        demo = _run([str(python), "-c", "from tensormorph.resources import resource; print(resource('demo'))"],
                    folder, environment).stdout.strip()  # fmt: skip
        assert Path(demo).is_relative_to(folder), f"the wheel's resources were looked for in {demo}"
        for item in ("fonts", "icons", "icons/tensormorph.svg"):
            assert (Path(demo).parent / item).exists(), f"{item} is not in the wheel"
        checkpoint = next(p.parent for p in sorted(Path(demo).rglob("*.index.json")))
        listed = _run([str(python), "-c", LIST % (HEAVY,), str(checkpoint)], folder, environment)
        rows = json.loads(listed.stdout)["tensors"]
        assert rows, "the demo lists no tensor"
        assert all(row["complete"] for row in rows), "a demo tensor is not complete"
        assert listed.stderr.strip().splitlines()[-1] == "[]", f"ls imported {listed.stderr.strip()}"
        for save in ("step-200", "step-300-ranks"):  # the former's index is a file whose name begins with a dot
            sharded = _run([str(python), "-c", LIST % (HEAVY,), str(Path(demo) / "run" / save)], folder, environment)
            assert all(row["complete"] for row in json.loads(sharded.stdout)["tensors"]), f"{save} is not complete"
            assert sharded.stderr.strip().splitlines()[-1] == "[]", f"ls imported {sharded.stderr.strip()}"
        size = wheel.stat().st_size
        print(
            f"wheel: {size / 1e6:.1f} MB, lists {len(rows)} tensors of its own demo, imports none of {', '.join(HEAVY)}"
        )
    return 0


def _run(
    command: list[str], folder: Path = ROOT, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} ...\n{done.stdout}\n{done.stderr}")
    return done


if __name__ == "__main__":
    raise SystemExit(main())
