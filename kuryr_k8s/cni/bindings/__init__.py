"""Ways to plug a Pod's interface, one for each class of VIF."""
