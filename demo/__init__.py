"""The demo: a year of flights from New York replayed as a stream of events, with SQL meanwhile."""
