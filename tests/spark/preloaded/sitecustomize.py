"""Python runs this at its start. Spark's daemons import memwal_sql before they fork workers, of
which each would import it by itself otherwise: two seconds for every plan."""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import memwal_sql.spark  # noqa: F401
