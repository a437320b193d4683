"""Watching a source: from video to moments (`engine`), and from moments to files and pages (`outputs`)."""
