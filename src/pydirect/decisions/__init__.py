"""What to try next: acquisition functions, bandits, and rows that are worth a label."""

__all__: list[str] = []
