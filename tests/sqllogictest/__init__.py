"""DataFusion's own sqllogictest files, over plain tables and over tables of this package."""
