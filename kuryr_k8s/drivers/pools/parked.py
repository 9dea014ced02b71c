"""Which ports of the pools the nodes keep plugged, by their own word."""


class Parked:
    """A port is parked at one place at the most."""

    def __init__(self) -> None:
        self._at: dict[str, set[str]] = {}
        self._places: dict[str, str] = {}

    def __contains__(self, port: object) -> bool:
        return port in self._places

    def replace(self, place: str, ports: set[str]) -> set[str]:
        """These are parked there, and no others; those that are so no more."""
        before = self._at.pop(place, set())
        for port in before | ports:
            self.discard(port)
        if ports:
            self._at[place] = ports
            self._places |= dict.fromkeys(ports, place)
        return before - ports

    def discard(self, port: str) -> None:
        place = self._places.pop(port, None)
        if place is not None:
            self._at.get(place, set()).discard(port)
