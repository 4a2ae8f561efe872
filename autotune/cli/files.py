"""Files that commands write where a person says."""

from pathlib import Path

from autotune.errors import SettingsError


def require_place(path: Path, replaces: bool) -> None:
    """Refuse before anything is written, so that files that belong together come together."""
    if path.exists() and not replaces:
        raise SettingsError(f"{str(path)!r} exists; give --force to replace it")
    if not path.parent.is_dir():
        raise SettingsError(
            f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}; make it "
            "first"
        )


def write_file(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        SettingsError: It cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{str(path)!r} cannot be written: {error.strerror}") from error
