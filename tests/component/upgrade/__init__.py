"""From an earlier version to this one, and back."""
