"""Files of a region: its manifests, values and snapshots."""
