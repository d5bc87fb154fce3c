"""Model files: one container, arrays and a versioned header, no pickle."""
