"""Names and shapes of other systems, mapped onto operations and services."""
