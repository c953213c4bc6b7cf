"""Notices that this process goes on in another life of its machine, and gives its generators new seeds.

The kernel's randomness (`os.urandom`, `uuid.uuid4`, `secrets`) is new in every life by itself. What a process keeps in
its memory is not: the state of `random`, and OpenSSL's generator behind `ssl`. Call `Generation.renew` before numbers
are drawn that must differ between siblings.
"""

import ctypes
import os
import random

PATH = "/run/coppice/generation"


class Generation:
    """One open descriptor on the file that a new life rewrites in place. Looking costs one system call."""

    def __init__(self, path: str = PATH) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._seen = self._read()

    def _read(self) -> bytes:
        return os.pread(self._file, 32, 0)

    def is_new(self) -> bool:
        """Whether this life is another than the one of the last call."""
        now = self._read()
        is_new, self._seen = now != self._seen, now
        return is_new

    def renew(self) -> bool:
        """New seeds for `random` and for OpenSSL, where this is a new life."""
        if not self.is_new():
            return False
        random.seed()
        # Seeds OpenSSL's primary generator anew; those of the threads follow with their next number.
        ctypes.CDLL("libcrypto.so.3").RAND_poll()
        return True
