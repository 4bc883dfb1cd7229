"""Where programs written for TorchAir look for `EVENT_LEVEL`."""
