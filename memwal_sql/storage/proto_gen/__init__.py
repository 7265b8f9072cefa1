"""Generated from `proto/*.proto` by `python proto/generate.py`; do not edit."""
