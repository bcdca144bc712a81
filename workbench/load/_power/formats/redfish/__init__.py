"""Power as Redfish tells it."""
