"""What is claimed about speed, as commands that print it; see README.md beside this file."""
