"""`bench rollout`: a Deployment is replaced Pod by Pod behind Services of each kind."""
