"""The manifest of a folder: the SHA-256 of every file that decides anything, checked before any of them is used.

    FOLDER/mule-manifest.json   format · files: name to SHA-256 · changing: the same of a change under way

A command that changes a file first adds the new digest under `changing`, then replaces the file, then moves the digest. So a
kill at any moment leaves a folder that is accepted, with the file of before or the new one.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mule.core.errors import WeightsError
from mule.core.files import os_reason, sha256_while_unchanged, write_file

MANIFEST = "mule-manifest.json"
MANIFEST_FORMAT = "mule-manifest-1"
DECIDING_SUFFIXES = (
    ".toml",
    ".json",
    ".safetensors",
    ".pt",
    ".pth",
    ".pkl",
    ".pyth",
    ".ckpt",
    ".onnx",
    ".bin",
    ".pdmodel",
    ".pdiparams",
)
"""What a file that decides something may end in; curves, logs and pages end differently."""
_NAME = re.compile(r"[\w .+-]{1,60}")
RECORDS = (MANIFEST, "run.json")
"""Files that decide nothing though they end so."""


class SealError(WeightsError):
    """A folder does not hold the files that were written there; the message names one."""


def seal(folder: Path, *, known: Mapping[str, str] | None = None) -> None:
    """Write the manifest of the files that a folder has now; `known` has digests that are known already."""
    _write(folder, _digests(folder, known or {}), {})


def names_in_manifest(folder: Path) -> list[str]:
    """Return the names of the files that a folder's manifest lists.

    Raises:
        SealError: there is no manifest, or it is damaged.
    """
    manifest = _read(folder)
    if manifest is None:
        raise SealError(
            f"{folder / MANIFEST}: must list the files of this folder; it does not exist. {_REMEDY}"
        )
    return sorted(manifest["files"])


def write_sealed(
    folder: Path,
    contents: Mapping[str, bytes],
    *,
    begins: bool = False,
    known: Mapping[str, str] | None = None,
) -> None:
    """Write files into a folder, in their order, and follow with its manifest.

    Args:
        folder: a folder without a manifest stays without one.
        contents: the content of each file.
        begins: begin a manifest where there is none.
        known: digests, known already, of files that a new manifest begins with.

    Raises:
        FileError: the disk is full, or a file is not writable.
    """
    manifest = _read(folder)
    if manifest is None and not begins:
        for name, content in contents.items():
            write_file(folder / name, content)
        return
    files = _digests(folder, known or {}) if manifest is None else _settled(folder, manifest)
    changing = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    _write(folder, files, changing)
    for name, content in contents.items():
        write_file(folder / name, content)
    _write(folder, files | changing, {})


def _settled(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of the files, with those of an earlier change that was made but not noted to its end."""
    made = {
        name: digest
        for name, digest in manifest["changing"].items()
        if (folder / name).is_file() and _found(folder / name, {}) == digest
    }
    return {**manifest["files"], **made}


def require_sealed(
    folder: Path, *, vouched: Mapping[str, str] | None = None, is_needed: bool = False
) -> None:
    """Require that a folder holds exactly the deciding files of its manifest.

    Args:
        folder: one without a manifest passes, unless it is needed.
        vouched: digests that somebody else compares with the files when they are read.
        is_needed: whether there must be a manifest: there is, since version 0.2.

    Raises:
        SealError: a file is missing, changed or extra.
    """
    manifest = _read(folder)
    if manifest is None:
        if is_needed:
            raise SealError(
                f"{folder / MANIFEST}: must list the files of this folder; it does not exist. {_REMEDY}"
            )
        return
    files, changing = manifest["files"], manifest["changing"]
    for name in sorted(files):
        if not (folder / name).is_file():
            raise SealError(
                f"{folder / name}: must exist, because the manifest lists it; it does not. {_REMEDY}"
            )
    there = {path.name for path in folder.iterdir() if _decides(path)}
    for name in sorted(there | files.keys()):
        accepted = {files.get(name), changing.get(name)} - {None}
        if not accepted:
            raise SealError(
                f"{folder / name}: must be a file of the manifest, because it would decide something; it is not. Remove it. "
                "Only commands of MULE add files here."
            )
        if _found(folder / name, vouched or {}) not in accepted:
            raise SealError(f"{folder / name}: must be as it was written; it has changed since. {_REMEDY}")


_REMEDY = "Copy the folder again, or make it again."


def _decides(path: Path) -> bool:
    return path.suffix in DECIDING_SUFFIXES and path.name not in RECORDS and not path.name.startswith(".")


def _digests(folder: Path, known: Mapping[str, str]) -> dict[str, str]:
    names = sorted(path.name for path in folder.iterdir() if _decides(path))
    return {name: _found(folder / name, known) for name in names}


def _found(path: Path, known: Mapping[str, str]) -> str:
    try:
        return known[path.name] if path.name in known else sha256_while_unchanged(path)
    except OSError as error:
        raise SealError(f"{path}: cannot be read: {os_reason(error)}.") from error


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise SealError(f"{path}: must be a manifest; {os_reason(error)}. {_REMEDY}") from error
    if not _is_manifest(manifest):
        raise SealError(f"{path}: must be a manifest of the format {MANIFEST_FORMAT}; it is not. {_REMEDY}")
    return manifest


def _is_manifest(manifest: object) -> bool:
    if not isinstance(manifest, dict) or manifest.get("format") != MANIFEST_FORMAT:
        return False
    parts = [manifest.get("files"), manifest.get("changing")]
    return all(isinstance(part, dict) and all(map(_is_entry, part.items())) for part in parts)


def _is_entry(entry: tuple[object, object]) -> bool:
    name, digest = entry
    return isinstance(name, str) and isinstance(digest, str) and _NAME.fullmatch(name) is not None


def _write(folder: Path, files: Mapping[str, str], changing: Mapping[str, str]) -> None:
    content = {"format": MANIFEST_FORMAT, "files": dict(sorted(files.items())), "changing": dict(changing)}
    write_file(folder / MANIFEST, json.dumps(content, indent=2) + "\n")
