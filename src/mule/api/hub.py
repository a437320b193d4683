"""Share models on the Hugging Face Hub: push a folder with a model card, pull it back, without pickles on either way.

folder ─▶ manifest holds? no pickles? ─▶ its files and README.md in one commit ─▶ OWNER/NAME
OWNER/NAME ─▶ manifest ─▶ the files it lists ─▶ checksums ─▶ folder
"""

import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mule.api.model_card import model_card
from mule.core.errors import DownloadError, MuleError
from mule.core.locks import new_folder
from mule.core.manifest import MANIFEST, names_in_manifest, require_sealed
from mule.watching.engine.bundle import THUMBNAILS
from mule.watching.engine.bundle_card import read_bundle_card

if TYPE_CHECKING:
    from huggingface_hub import HfApi

PICKLES = (".pt", ".pth", ".pkl", ".pyth", ".ckpt", ".bin")
README = "README.md"


class HubError(DownloadError):
    """A model cannot be pushed or pulled; the message says what to do."""


def push_to_hub(folder: Path, name: str, *, token: str | None = None, is_private: bool = True) -> str:
    """Put a model on the Hub as OWNER/NAME and return the address of the commit.

    Args:
        folder: what `mule bundle`, `Model.train` or `Model.save` made.
        name: OWNER/NAME; it is made if it does not exist.
        token: by default the one that `hf auth login` stored, or HF_TOKEN.
        is_private: whether only you see a new one.

    Raises:
        WeightsError: the folder is no whole model.
        HubError: it holds pickles, or the Hub refuses it.
    """
    card = read_bundle_card(folder)
    require_sealed(folder, is_needed=True)
    files = _without_pickles([*names_in_manifest(folder), MANIFEST], str(folder))
    files += [THUMBNAILS] if (folder / THUMBNAILS).exists() else []
    with _hub(name, token) as api:
        from huggingface_hub import CommitOperationAdd

        parts = [CommitOperationAdd(each, str(folder / each)) for each in files]
        parts.append(CommitOperationAdd(README, model_card(folder, name).encode()))
        api.create_repo(name, private=is_private, exist_ok=True)
        done = api.create_commit(name, parts, commit_message=f"Model {card.name}, {card.weights_sha256[:12]}")
    return str(done.commit_url)


def pull_from_hub(name: str, out: Path, *, revision: str | None = None, token: str | None = None) -> Path:
    """Fetch the model OWNER/NAME into a new folder and return it; the folder appears when every checksum has held.

    Args:
        name: OWNER/NAME.
        out: the folder to make.
        revision: a commit, tag or branch; by default the latest.
        token: as for `push_to_hub`.

    Raises:
        WeightsError: what the Hub has is no whole model.
        HubError: it cannot be fetched, or it holds pickles.
    """
    with new_folder(out) as parts, tempfile.TemporaryDirectory(prefix="mule-hub-") as scratch:
        with _hub(name, token) as api:

            def fetch(file: str) -> None:
                got = api.hf_hub_download(name, file, revision=revision, local_dir=scratch)
                shutil.move(got, parts / file)

            there = set(api.list_repo_files(name, revision=revision))
            if MANIFEST not in there:
                raise HubError(f"{name}: must be a model that `mule push` put there; it has no {MANIFEST}.")
            fetch(MANIFEST)
            files = _without_pickles(names_in_manifest(parts), name)
            for file in [*files, *({THUMBNAILS, README} & there)]:
                fetch(file)
        require_sealed(parts, is_needed=True)
        read_bundle_card(parts)
    return out


def _without_pickles(files: Sequence[str], where: str) -> list[str]:
    pickled = [each for each in files if each.endswith(PICKLES)]
    if pickled:
        raise HubError(
            f"{where}: must hold no pickles, which can run code where they are read; it holds {', '.join(pickled)}. Make the model "
            "again with weights of `mule weights pull`, or any .safetensors file."
        )
    return list(files)


@contextmanager
def _hub(name: str, token: str | None) -> "Generator[HfApi]":
    """Yield the client; what it raises becomes one sentence."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
        from huggingface_hub.errors import HTTPError as UnreachableError
    except ImportError as missing:
        raise HubError(
            f"push and pull need huggingface_hub: pip install 'mule-actions[hub]'. It could not be imported: {missing}"
        ) from missing
    try:
        yield HfApi(token=token, library_name="mule")
    except MuleError:
        raise
    except (HfHubHTTPError, HFValidationError, UnreachableError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise HubError(
            f"{name}: must be reachable on the Hub as OWNER/NAME, and yours to change if you push; {reason} `hf auth login` stores "
            "a token."
        ) from error
