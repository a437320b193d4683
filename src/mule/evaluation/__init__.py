"""Metrics that state their convention: open-set scores, multi-label mAP, AVA frame-mAP and Charades mAP."""
