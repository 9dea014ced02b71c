"""Half an hour of Pods that come and go in batches, and of restarts, all at random times."""
