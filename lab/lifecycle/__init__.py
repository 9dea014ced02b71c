"""Starting, stopping and supervising the components of the lab."""
