"""Region specs: how rows are divided into regions, and which regions a filter leaves."""
