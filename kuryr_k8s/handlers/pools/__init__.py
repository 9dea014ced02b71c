"""The handler of KuryrPortPools, and the workers of pool drivers."""
