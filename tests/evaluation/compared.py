"""Small comparisons made by hand, for the tests of this room."""

from mule.evaluation.outcomes import Comparison, Measure, MethodRow, Outcome, Trial

AUROC = Measure("auroc", "AUROC", "higher")
FPR = Measure("fpr_at_95_tpr", "FPR at 95 % TPR", "lower")
MAP = Measure("map", "Closed-set mAP", "higher", has_scores=False)

HOSTILE = [
    "a|b",
    "50%_x",
    "<b>bold</b>",
    "quo\"te's`",
    "back\\slash",
    "$x_1^2$",
    "{brace} [link](http://x)",
    "*star* _under_ ~~gone~~ #1 & co",
    "line\nbreak",
    "=1+1,comma;",
    "_hidden",
    "[option]",
]


def outcomes_of(method, measure, values, *, score="", split="A", intervals=None):
    """One outcome per value; the seeds are 0, 1, 2, …"""
    return [
        Outcome(method, measure.key, value, Trial(split, seed), score, intervals[seed] if intervals else None)
        for seed, value in enumerate(values)
    ]


def compared(values, measure=AUROC, *, score="PE"):
    """A comparison of one measure on one score: method → values over seeds."""
    outcomes = [
        each for method, its in values.items() for each in outcomes_of(method, measure, its, score=score)
    ]
    return Comparison(tuple(MethodRow(name) for name in values), (measure,), tuple(outcomes))
