"""Keep freed memory in the process, so that the next large block need not come from the system page by page."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # parameters of glibc's mallopt
_KEPT_BYTES, _GROWTH_BYTES = 2**31 - 1, 2**28


def keep_freed_memory() -> bool:
    """Keep freed large blocks in this process; return whether the C library supports it (only glibc does).

    By default glibc maps every large block anew and returns it at once, and the system clears each page on first use.
    Training and decoding request the same sizes over and over. With this the process may hold up to 2 GiB that it does
    not use. It affects the whole process, so only our commands and worker processes call it; importing the library does
    not.

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
