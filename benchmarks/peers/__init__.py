"""The same mixed work by other tables that can be upserted into, on a local disk."""
