"""Files and formats: the object store, region manifests, WAL entries, flushed generations."""
