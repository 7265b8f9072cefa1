"""Tests of MERGE INTO."""
