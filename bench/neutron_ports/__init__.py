"""`bench neutronports`: ports as objects, made and bound."""
