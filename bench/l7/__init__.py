"""`bench l7`: one more host behind an L7 router."""
