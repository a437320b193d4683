"""Rendering speed of Stage: clips of 32 frames, 96 × 128 pixels, 1 to 4 actors."""

from mule.stage.speed import clips_per_second


def main() -> None:
    for processes, rate in clips_per_second().items():
        goal = " (goal: at least 40)" if processes == 2 else ""
        print(f"{processes} process{'es' if processes > 1 else ''}: {rate:.1f} clips per second{goal}")


if __name__ == "__main__":
    main()
