"""Draw the shipped icons in a colour of the theme, sharp at the screen's ratio of device to logical pixels."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, Qt
from PySide6.QtGui import QGuiApplication, QIcon, QImage, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from tensormorph.resources import resource


@lru_cache(maxsize=512)
def recoloured(name: str, colour: str) -> bytes:
    """Return the SVG `icons/<name>.svg` with every `currentColor` replaced by `colour`, such as `#1B1F26`.

    FileNotFoundError when no such icon is shipped.
    """
    return resource(f"icons/{name}.svg").read_bytes().replace(b"currentColor", colour.encode())


@lru_cache(maxsize=1024)
def _drawn(name: str, colour: str, pixels: int) -> QImage:
    """Draw an icon `pixels` device pixels wide and high; an image, as a pixmap must not outlive the application."""
    # Qt breaks up strokes thinner than a device pixel, which is what 1.75 of 24 becomes in small icons: shrink those.
    drawn_at = pixels if pixels * 1.75 / 24 >= 1 else pixels * 4
    renderer = QSvgRenderer(QByteArray(recoloured(name, colour)))
    image = QImage(drawn_at, drawn_at, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    if drawn_at == pixels:
        return image
    return image.scaled(pixels, pixels, mode=Qt.TransformationMode.SmoothTransformation)


def pixmap(name: str, colour: str, size: int, ratio: float) -> QPixmap:
    """Return an icon in `colour`, `size` logical pixels wide and high on a screen of that device pixel ratio.

    For delegates that paint; the drawing is cached by name, colour, size and ratio. FileNotFoundError as `recoloured`.
    """
    drawn = QPixmap.fromImage(_drawn(name, colour, round(size * ratio)))
    drawn.setDevicePixelRatio(ratio)
    return drawn


def icon(name: str, colour: str, size: int = 16) -> QIcon:
    """Return an icon in `colour` for buttons and actions, `size` logical pixels, sharp on every connected screen.

    Make it again when the theme changes. FileNotFoundError as `recoloured`.
    """
    made = QIcon()
    for ratio in sorted({1.0, *(screen.devicePixelRatio() for screen in QGuiApplication.screens())}):
        made.addPixmap(pixmap(name, colour, size, ratio))
    return made
