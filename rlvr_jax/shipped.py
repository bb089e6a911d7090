"""Where the study files and figure scripts that come with the library are."""

from pathlib import Path


def folder(name: str) -> Path:
    """The folder ``sweeps`` or ``figures``: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
