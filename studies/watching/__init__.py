"""What is said of people in untrimmed video: idle, unsure, known or novel, and evidence along a track."""
