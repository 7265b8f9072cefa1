"""The write-ahead log: its entries and their checksums."""
