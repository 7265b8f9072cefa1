"""`python -m memwal_sql` is the command `memwal`."""

from __future__ import annotations

from memwal_sql.cli.app import main

if __name__ == "__main__":
    main()
