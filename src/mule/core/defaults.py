"""Defaults that stand both in a room's signature and in the experiment file, written once.

Rooms do not import `mule.core.config`, so both import these.
"""

HSIC_TOLERANCE = 1e-3
"""γ: the largest HSIC that counts as debiased."""
DUAL_STEP_SIZE = 10.0
"""η₂: the step size of the multiplier's ascent."""
DUAL_DAMPING = 1e-4
"""δ: how strongly the multiplier is drawn back to zero."""
INNER_STEPS = 1
"""m: optimiser steps per mini-batch."""
BASE_RATE = 0.5
"""a of Eq. 1: with W = 2, belief, disbelief and uncertainty sum to one."""

FLIP_PROBABILITY = 0.5
BOX_JITTER = 0.075
"""Share of a box's width or height by which each edge moves at most (ACAR-Net, MULE)."""

MILESTONE_FACTOR = 0.1
"""Factor on the learning rate at each milestone."""

READ_WORKERS = 1
PREFETCH_BATCHES = 2
UNREADABLE_SHARE = 0.01
"""Loading stops if more than this share of an epoch's clips cannot be read."""

PAPER_ACTOR_SCORE = 0.85
"""Least score of an actor in the paper (Faster R-CNN, ResNeXt-101-FPN)."""
