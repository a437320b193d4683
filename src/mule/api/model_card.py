"""The model card of a bundle: what it knows, how well, from which data, and what it cannot do, as Markdown."""

from pathlib import Path

from mule.features.weights.cards import find_card
from mule.watching.engine.bundle import read_known_examples
from mule.watching.engine.bundle_card import BundleCard, read_bundle_card

NUMBERS = (
    ("validation_mean_ap", "mAP of its actions on validation films, which chose its weights"),
    ("test_mean_ap", "mAP of its actions on films it was not taught by"),
    ("test_first_right", "people there whose likeliest action is right"),
    ("test_known_flagged", "people there flagged as novel (5 % promised)"),
    ("names_right", "names given on validation films that are right"),
    ("actions_named", "actions there that are named"),
    ("auroc_one_look", "novel actions held out of teaching: AUROC of one look"),
    ("auroc_named", "  of those that Kinetics-400 has a name for"),
    ("auroc_unnamed", "  of the others"),
    ("novel_flagged_one_look", "novel people flagged at one look"),
    ("known_flagged_one_look", "known people flagged at one look (5 % promised)"),
    ("known_called_idle", "people who do a known action called idle"),
    ("standing by called idle", "people standing by called idle"),
    ("still called idle", "people of a still frame called idle"),
    ("closed_mean_ap", "mAP of its actions on takes it was not taught by"),
    ("novel_flagged", "novel people flagged while watched"),
    ("known_flagged", "known people flagged while watched (5 % promised)"),
    ("person_recall", "people found"),
)
"""Numbers on a model's card that people ask for, in words."""

_TEXT = """---
library_name: mule
tags: [action-recognition, open-set-recognition, video]
---

# {name}

Recognises {count} actions of every person in a video, several at once, and notices people who do something else.

```sh
pip install mule-actions
mule pull {repository} --out {name}
mule watch video.mp4 --model {name}
```

## What it knows

| action | examples | average precision |
| :-- | --: | --: |
{actions}

## How well

{numbers}

## Made of

{data}

## Limits

It knows these actions as its examples show them: other views, ages, clothes and cameras may look novel. That at most 5 % of known
people are flagged holds for people and videos like those it was calibrated on. *Novel* means unlike what was taught, not
dangerous or wrong; do not decide about people by it alone.
"""


def model_card(folder: Path, repository: str) -> str:
    """Return the card of a model, to be shown as OWNER/NAME on the Hub."""
    card = read_bundle_card(folder)
    examples = read_known_examples(folder)
    return _TEXT.format(
        name=card.name,
        repository=repository,
        count=len(examples),
        actions="\n".join(
            f"| {_cell(action)} | {number or ''} | {_percent(card.metrics.get(f'ap {action}'))} |"
            for action, number in examples.items()
        ),
        numbers=_numbers(card),
        data="\n".join(_made_of(card)),
    )


def _numbers(card: BundleCard) -> str:
    found = [
        f"- {words.strip()}: {_percent(card.metrics[key])}" for key, words in NUMBERS if key in card.metrics
    ]
    if card.watched is not None:
        found.append(f"- {card.watched.in_words()}")
    return "\n".join(found) or "Not measured."


def _made_of(card: BundleCard) -> list[str]:
    lines = [f"- {what}: SHA-256 {digest}" for what, digest in card.data.items()]
    if card.backbone_card is not None:
        weights = find_card(card.backbone_card)
        lines.append(f"- backbone {weights.name}; licence: {weights.licence}")
    lines.append(
        f"- weights: SHA-256 {card.weights_sha256}"
        + (f", made by commit {card.commit}" if card.commit else "")
    )
    return lines


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
