"""Weight cards and files of weights, shown to people."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from mule.core.errors import WeightsError
from mule.core.files import cache_folder
from mule.detection.cards import FASTER_RCNN_CARDS, YOLOX_CARDS, DetectorCard
from mule.features.weights import download
from mule.features.weights.cards import WEIGHT_CARDS, WeightCard
from mule.features.weights.checkpoints import Checkpoint, read_checkpoint
from mule.features.weights.loading import fitting_cards, match_card, num_known

Card = WeightCard | DetectorCard

DETECTOR_CARDS: Mapping[str, DetectorCard] = {
    each.name: each for each in (*YOLOX_CARDS.values(), *FASTER_RCNN_CARDS.values())
}
CARDS: Mapping[str, Card] = {**WEIGHT_CARDS, **DETECTOR_CARDS}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked", "_rm", "_riv")


def find_card(name: str) -> Card:
    """The card of that name, of a backbone or of a detector."""
    if name not in CARDS:
        raise WeightsError(f"there must be a card of that name; got '{name}'. See `mule weights list`.")
    return CARDS[name]


def cards(folder: Path | None) -> None:
    """Print one line per card, with a star before those whose file is on disk."""
    kept_in = folder or cache_folder()
    for each in CARDS.values():
        mark = "*" if download.place_of(each, kept_in).is_file() else " "
        typer.echo(f"{mark} {each.name:<45} {_input(each):<22} {_score(each).partition(',')[0]}".rstrip())
    typer.echo(f"* in {kept_in}. `mule weights list NAME` says more.")


def card(name: str, folder: Path | None) -> None:
    """Print all that a card says."""
    each = find_card(name)
    if isinstance(each, WeightCard):
        about = {
            "fits": f"{each.backbone}: {', '.join(f'{key}={value}' for key, value in each.options.items())}",
            "pixels": f"short side {each.clip.short_side_px}, normalised as {each.clip.normalisation}",
            "tensors": f"{each.num_tensors}, named by {each.source}",
            "classes": f"{each.num_classes or 'no head'} {each.label_map or ''}".rstrip(),
            "note": each.note,
        }
    else:
        about = {"actors from score": str(each.actor_score)}
    rows = {
        "input": _input(each),
        "reported": _score(each),
        **about,
        "licence": each.licence,
        "sha256": each.sha256 or (f"{each.hash_prefix}…" if each.hash_prefix else "not published"),
        "address": each.address or "none",
        "on disk": str(download.place_of(each, folder or cache_folder())),
    }
    typer.echo(each.name)
    for title, text in rows.items():
        if text:
            typer.echo(f"  {title + ':':<18} {text}")


def pull(name: str, folder: Path | None, *, offline: bool) -> None:
    """Fetch a card's file under a progress bar, and print where it is and what its checksum is."""
    with _progress_bar(name) as bar:
        pulled = download.pull(find_card(name), folder or cache_folder(), offline=offline, on_progress=bar)
    came = "was there" if pulled.was_there else "fetched"
    checked = "as published" if pulled.is_checked else "none is published to compare it with"
    typer.echo(f"{pulled.path}: {came}. sha256 {pulled.sha256}, {checked}.")


def check(file: Path, card_name: str | None) -> None:
    """Print what a file of weights is and which cards it fits.

    Raises:
        WeightsError: it is not weights, is damaged, wants something run, or fits no card, or not the one given.
        DownloadError: it has another checksum than the card given.
    """
    try:
        sha256 = download.sha256_of(file)
    except OSError as error:
        raise WeightsError(f"{file}: must be a file that can be read; {error.strerror}.") from error
    wanted = None if card_name is None else find_card(card_name)
    if wanted is not None:
        download.require_checksum(wanted, sha256, file)
    detector = wanted if isinstance(wanted, DetectorCard) else _detector_of(sha256)
    if detector is not None:
        typer.echo(
            f"{file}: weights of a detector\n  sha256   {sha256}\n  fits     {detector.name}, as published"
        )
        return
    if file.suffix == ".onnx":
        raise WeightsError(
            f"{file}: must be a published detector; no card has its checksum {sha256}. Pull it again."
        )
    checkpoint = read_checkpoint(file)
    _print_facts(checkpoint, sha256)
    fitting = [wanted] if isinstance(wanted, WeightCard) else fitting_cards(checkpoint)
    for each in fitting or [_nearest(checkpoint)]:
        typer.echo(f"  fits     {each.name}: {match_card(checkpoint, each)}{_verdict(each, sha256)}")


def _print_facts(checkpoint: Checkpoint, sha256: str) -> None:
    weights = [tensor for name, tensor in checkpoint.tensors.items() if not name.endswith(STATISTICS)]
    num_parameters = sum(tensor.numel() for tensor in weights)
    typer.echo(f"{checkpoint.path}: {checkpoint.format}")
    typer.echo(f"  tensors  {len(checkpoint.tensors)}, {num_parameters / 1e6:.2f} M parameters")
    typer.echo(f"  sha256   {sha256}")


def _nearest(checkpoint: Checkpoint) -> WeightCard:
    """The card that knows most of the names, so that its complaint says most about the file."""
    known = {card: num_known(checkpoint, card) for card in WEIGHT_CARDS.values()}
    if not any(known.values()):
        names = ", ".join(list(checkpoint.tensors)[:3])
        raise WeightsError(f"{checkpoint.path}: must fit a card; none knows names such as {names}.")
    return max(known, key=lambda card: (known[card], -abs(card.num_tensors - known[card])))


def _verdict(card: WeightCard, sha256: str) -> str:
    if card.sha256 is None and card.hash_prefix is None:
        return ""
    return ", as published" if _has_checksum(card, sha256) else ", but with another checksum"


def _detector_of(sha256: str) -> DetectorCard | None:
    return next((each for each in DETECTOR_CARDS.values() if _has_checksum(each, sha256)), None)


def _has_checksum(card: Card, sha256: str) -> bool:
    known = card.sha256 or card.hash_prefix
    return known is not None and sha256.startswith(known)


def _input(card: Card) -> str:
    if isinstance(card, DetectorCard):
        return f"image, {card.input_px} px"
    clip = card.clip
    size = f"crop {clip.crop_px} px" if clip.crop_px else f"whole, {clip.short_side_px} px"
    return f"{clip.num_frames}×{clip.stride_frames}, {size}"


def _score(card: Card) -> str:
    if isinstance(card, DetectorCard):
        return f"{card.coco_ap:g} COCO AP"
    return "" if card.score is None else f"{card.score:g} {card.measure}"


@contextmanager
def _progress_bar(name: str) -> Generator[download.OnDownload, None, None]:
    """A bar on a terminal; silence anywhere else."""
    console = Console(stderr=True)
    columns = (
        "{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda num_bytes, total: progress.update(task, completed=num_bytes, total=total)
