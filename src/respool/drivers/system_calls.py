"""System calls that not every POSIX system has, with replacements.

Looked up at each call, so that tests can remove one.

                    Linux              macOS                                elsewhere
sync_data           fdatasync          fcntl(F_FULLFSYNC)                   fdatasync, or fsync
sync_file           fsync              fcntl(F_FULLFSYNC)                   fsync
allocate            posix_fallocate    zeros are written                    posix_fallocate, or zeros
raise_file_limit    to the hard limit  hard limit is infinite: to a number  to the hard limit
"""

import errno
import fcntl
import os
import resource

# Errors of a call that the system supports, but not this file system.
NOT_SUPPORTED = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENOTTY}
)
_ZEROS = bytes(1024 * 1024)
# macOS accepts no infinite limit, and none above `kern.maxfilesperproc`; it always accepts its OPEN_MAX, the last one.
_FILE_LIMITS = (1_048_576, 131_072, 65_536, 10_240)


def sync_data(fd: int) -> None:
    """Make a file's data and size durable."""
    if _full_sync(fd):
        return
    fdatasync = getattr(os, "fdatasync", os.fsync)
    fdatasync(fd)


def sync_file(fd: int) -> None:
    """Make a file, or the names in a folder, durable."""
    if not _full_sync(fd):
        os.fsync(fd)


def syncs_mapped_pages() -> bool:
    """True if syncing a file writes the dirty pages of its mappings. POSIX requires msync for that."""
    return hasattr(os, "fdatasync")


def allocate(fd: int, position: int, size: int) -> None:
    """Extend a file that ends at `position` with zeros in allocated blocks."""
    posix_fallocate = getattr(os, "posix_fallocate", None)
    if posix_fallocate is not None:
        try:
            posix_fallocate(fd, position, size)
        except OSError as error:
            # glibc writes zeros itself if the file system cannot allocate; other C libraries do not.
            if error.errno not in NOT_SUPPORTED:
                raise
        else:
            return
    end = position + size
    while position < end:
        position += os.pwrite(fd, _ZEROS[: end - position], position)


def raise_file_limit() -> None:
    """Raise the limit of open files to the system's maximum; the soft limit is often 1,024, on macOS 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    for wanted in (hard, *_FILE_LIMITS):
        if wanted != resource.RLIM_INFINITY and wanted <= soft:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            continue
        return


def _full_sync(fd: int) -> bool:
    """True if F_FULLFSYNC exists and succeeded.

    On macOS fsync leaves the data in the drive's cache, and a power cut loses it.
    """
    command = getattr(fcntl, "F_FULLFSYNC", None)
    if command is None:
        return False
    try:
        fcntl.fcntl(fd, command)
    except OSError as error:
        # Network file systems. Any other error is a failed sync: a following fsync could report success.
        if error.errno not in NOT_SUPPORTED:
            raise
        return False
    return True
