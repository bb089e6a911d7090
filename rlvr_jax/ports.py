"""Addresses of other processes: what one is, whether anybody answers there, and whether a port is free."""

import re
import socket
import time

#: Seconds between two tries to reach an address.
TRY_EVERY = 0.5


def parsed(text: str) -> tuple[str, int] | None:
    """Host and port of ``HOST:PORT``, with brackets around a host that has colons itself; None if it is none.

    >>> parsed("10.0.0.1:8786"), parsed("[::1]:8786"), parsed("10.0.0.1:99999")
    (('10.0.0.1', 8786), ('::1', 8786), None)
    """
    found = re.fullmatch(r"(\[[^\s\]]+\]|[^\s:/,\[\]]+):(\d{1,5})", text)
    if not found or not 0 < int(found[2]) < 2**16:
        return None
    return found[1].strip("[]"), int(found[2])


def silent(host: str, port: int, patience: float) -> str:
    """Why nobody answers at an address, after trying for ``patience`` seconds; empty as soon as somebody does."""
    until = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection((host, port), timeout=max(TRY_EVERY, until - time.monotonic())):
                return ""
        except socket.gaierror as error:
            return str(error.strerror or error)  # no such host
        except OSError as error:
            if time.monotonic() + TRY_EVERY > until:
                return str(error.strerror or error).lower()
        time.sleep(TRY_EVERY)


def free(port: int) -> bool:
    """Whether this machine can open a port."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True
