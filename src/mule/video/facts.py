"""What is known of a video, and what reading it met on the way."""

from dataclasses import dataclass
from fractions import Fraction

WORTH_SAYING_S = Fraction(1, 4)


@dataclass(frozen=True)
class VideoFacts:
    """What is known of a source once its first frame is decoded. Rows and columns are those of upright frames."""

    rows: int
    cols: int
    frame_rate: Fraction
    """The average over the source; the time between two frames may differ."""
    duration_s: Fraction | None
    """As the container states it; None for a live stream."""
    codec: str
    pixel_format: str
    start_offset_s: Fraction = Fraction(0)
    """The first frame's time on the container's clock: subtract it from times read off a player."""


@dataclass
class DecodeReport:
    """What reading a source met. All but `num_decoded` is zero for a sound video read within its bounds."""

    num_decoded: int = 0
    num_damaged: int = 0
    """Pieces the decoder refused; what was shown before stays on screen."""
    num_concealed: int = 0
    """Frames the decoder gave but had to patch up."""
    num_missing: int = 0
    """Frames the container or the numbering promised that were not there (known once the end is reached)."""
    num_out_of_order: int = 0
    """Frames dropped because their timestamp did not move forward."""
    num_untimed: int = 0
    """Frames without a timestamp, placed one frame after the one before."""
    num_rescaled: int = 0
    """Frames whose size differed from the first one's and was made equal."""
    num_clamped: int = 0
    """Times before the first or after the last frame that were given that frame."""
    longest_gap_s: Fraction = Fraction(0)
    """The longest any frame stayed on screen."""
    end_s: Fraction | None = None
    """When the last frame leaves the screen; None until the end was reached."""
    stopped_by: str | None = None
    """What ended the reading before the source's own end."""
    unread_from_s: Fraction | None = None
    """Key time of the first window that lay after the end; it and the later ones were not read."""

    def summary(self) -> str:
        """One line with every count that is not zero, and a gap if it is long.

        >>> DecodeReport(num_decoded=292, num_damaged=8).summary()
        '292 decoded; 8 damaged'
        """
        counts = {name[4:].replace("_", " "): n for name, n in vars(self).items() if name.startswith("num_")}
        parts = [f"{n} {name}" for name, n in counts.items() if n or name == "decoded"]
        if self.longest_gap_s >= WORTH_SAYING_S:
            parts.append(f"one frame stayed for {float(self.longest_gap_s):g} s")
        if self.stopped_by is not None:
            parts.append(f"stopped by: {self.stopped_by}")
        if self.unread_from_s is not None:
            parts.append(f"windows from {float(self.unread_from_s):g} s on lie after the end")
        return "; ".join(parts)
