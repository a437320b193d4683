"""Records what the oracles say of seeded weights and clips, in goldens.json.

    MULE_ORACLES=A:B python tests/features/record_goldens.py

(oracles.py says how to install them.) Of each output some values, evenly spaced, are kept, and the SHA-256 of the
weights and of the clip they came from, so that a test can tell a wrong backbone from a wrong seed.
"""

import json
from pathlib import Path

from parity_cases import CASES
from seeded_weights import digest

GOLDENS = Path(__file__).with_name("goldens.json")
NUM_KEPT = 48


def kept_values(output):
    """Evenly spaced values of an output, the last one among them."""
    flat = output.flatten()
    step = max(1, len(flat) // NUM_KEPT)
    return flat.flip(0)[::step]


def main():
    goldens = {}
    for name, case in CASES.items():
        clip = case.clip()
        goldens[name] = {
            "weights_sha256": case.seeded()[1],
            "clip_sha256": digest({"clip": clip}),
            "outputs": {
                key: {
                    "shape": list(output.shape),
                    "values": [round(v, 8) for v in kept_values(output).tolist()],
                }
                for key, output in case.oracle(clip).items()
            },
        }
    GOLDENS.write_text(json.dumps(goldens, indent=1) + "\n")


if __name__ == "__main__":
    main()
