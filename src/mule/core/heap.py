"""Freed memory stays with the process, so that the next large block need not be fetched from the system page by page."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # parameters of glibc's mallopt
_KEPT_BYTES, _GROWTH_BYTES = 2**31 - 1, 2**28


def keep_freed_memory() -> bool:
    """Whether large blocks now stay with this process when they are freed; only glibc can be told so.

    By default glibc maps every large block anew and gives it back at once, and the system clears each page of it at
    first touch. Training and decoding ask for the same sizes over and over. The process then holds up to 2 GiB that it
    does not use. It concerns the whole process, so commands and worker processes of ours call this; the library never
    does it to a program that merely imports it.

    >>> keep_freed_memory()  # doctest: +SKIP
    True

    Tests skip the example, because it changes the allocator of the whole process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    wanted = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _KEPT_BYTES), (_TOP_PAD, _GROWTH_BYTES))
    return all(mallopt(parameter, value) == 1 for parameter, value in wanted)
