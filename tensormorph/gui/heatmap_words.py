"""What is said below and beside the heatmap."""

from __future__ import annotations

from collections.abc import Sequence

from tensormorph.gui.viewer import Viewer
from tensormorph.picture import Reduction
from tensormorph.survey import Survey
from tensormorph.text import count, plural, printable


def caption_text(viewer: Viewer, rule: Reduction, sampled: bool) -> str:
    """Return what one pixel of the picture stands for; empty before anything is seen."""
    camera = viewer.camera
    if camera is None:
        return ""
    rows, cols = camera.down.elements_a_pixel, camera.right.elements_a_pixel
    if rows * cols == 1:
        rounded = "   numbers are rounded to fit" if viewer.numbers_rounded else ""
        return f"Each cell is one element{rounded}"
    told = f"the {rule} of a sample of them" if sampled else f"their {rule}"
    return f"1 pixel is up to {count(rows)} × {count(cols)} elements: {told}"


def limits_text(survey: Survey, span: str) -> str:
    """Return where the ends of the scale come from."""
    source = "all elements" if survey.exact else f"a sample, 1:{survey.step}, of the elements"
    if span == "min to max":
        return f"Lowest to highest value of {source}"
    return f"99 in 100 magnitudes lie within; told from {source}. Colours beyond the ends saturate."


def trouble_text(sentences: Sequence[str]) -> tuple[str, str]:
    """Return why elements cannot be read, as one line and as a tooltip."""
    shown = [printable(sentence, 300) for sentence in sentences]
    more = f" and {plural(len(shown) - 1, 'more problem')}" if len(shown) > 1 else ""
    return (shown[0] + more if shown else ""), "\n".join(shown[:20])
