"""The 80 classes of COCO: their names, in the order of every 80-class detector, and their category ids in files."""

from collections.abc import Mapping

COCO_CLASSES: tuple[str, ...] = tuple(
    """
    person|bicycle|car|motorcycle|airplane|bus|train|truck|boat|traffic light|fire hydrant|stop sign|parking meter|
    bench|bird|cat|dog|horse|sheep|cow|elephant|bear|zebra|giraffe|backpack|umbrella|handbag|tie|suitcase|frisbee|
    skis|snowboard|sports ball|kite|baseball bat|baseball glove|skateboard|surfboard|tennis racket|bottle|
    wine glass|cup|fork|knife|spoon|bowl|banana|apple|sandwich|orange|broccoli|carrot|hot dog|pizza|donut|cake|
    chair|couch|potted plant|bed|dining table|toilet|tv|laptop|mouse|remote|keyboard|cell phone|microwave|oven|
    toaster|sink|refrigerator|book|clock|vase|scissors|teddy bear|hair drier|toothbrush
    """.replace("\n", "")
    .replace("    ", "")
    .split("|")
)
"""Class names by class index; 0 is `person`."""

_UNUSED_CATEGORY_IDS = frozenset({12, 26, 29, 30, 45, 66, 68, 69, 71, 83})

CLASS_INDEX_BY_CATEGORY_ID: Mapping[int, int] = {
    category_id: class_index
    for class_index, category_id in enumerate(n for n in range(1, 91) if n not in _UNUSED_CATEGORY_IDS)
}
"""Class index by the category id that COCO files and torchvision's detectors write: 1..90 with ten gaps."""

OTHER_OBJECT = len(COCO_CLASSES)
"""Class index of an object whose class COCO does not have, or whose class is not said."""
