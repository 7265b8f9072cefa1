"""Bugs that other MemWAL implementations had, each named by the behaviour it broke.

Numbers are those of lance-format/lance, unless the docstring names another project. Those of the
search nodes, the mergers and the collector belong to the tests of these parts.
"""
