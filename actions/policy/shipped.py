"""The policies that come with Fallow: their folder, and how a site gets its own copy."""

from importlib.resources import files
from pathlib import Path

from fallow.errors import UsageError
from fallow.system.private_files import share_file, share_folder


def get_folder() -> Path:
    """Return the folder of the policies that come with Fallow: part of the package."""
    return Path(str(files("policies")))


def write_out(target: Path, *, force: bool = False) -> list[Path]:
    """Copy the shipped policies into a folder; return the files written.

    Either all files are written or none: the site's changes are overwritten only with force. A file
    with the same content is not written.

    Raises:
        UsageError: files of other content are there, or the folder cannot be written.
    """
    texts = {target / path.name: path.read_bytes() for path in sorted(get_folder().glob("*.yaml"))}
    try:
        existing = {path: path.read_bytes() for path in texts if path.exists()}
        new = [path for path, text in texts.items() if existing.get(path) != text]
        changed = [path.name for path in new if path in existing]
        if changed and not force:
            raise UsageError(
                f"{target} holds other texts of {', '.join(changed)}: nothing is written",
                hint=f"fallow policy init {target} --force overwrites them",
            )
        if not target.exists():
            target.mkdir(parents=True)
            share_folder(target)
        for path in new:
            path.write_bytes(texts[path])
            share_file(path)
    except OSError as error:
        path_text = error.filename or target
        raise UsageError(f"{path_text} cannot be written: {error.strerror}") from error
    return new
