"""The labels by which plans name what they read and which rows they keep."""
