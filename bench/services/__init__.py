"""`bench services`: Services at once, churn, and a restart."""
