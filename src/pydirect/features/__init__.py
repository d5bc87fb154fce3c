"""From columns to basis functions Φ."""
