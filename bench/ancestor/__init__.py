"""`bench ancestor`: kuryr-kubernetes beside this project."""
