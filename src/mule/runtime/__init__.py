"""Models exported to ONNX and OpenVINO, and running what was exported."""
