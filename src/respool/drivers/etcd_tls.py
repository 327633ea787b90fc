"""TLS contexts for etcd. Certificates are short-lived: their files are replaced while the broker runs."""

import logging
import os
import ssl

from respool.drivers.etcd_options import EtcdOptions

logger = logging.getLogger(__name__)


class EtcdTls:
    """Loads the files, and loads them again for a new connection if one has changed.

    Raises OSError (ssl.SSLError is one) when it is created: a file cannot be read, or contains no certificate or key.
    """

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        # Taken before reading: a write during the read counts as a change the next time.
        self._marks = self._marks_now()
        self._context = _new_context(options)
        self._marks_told = self._marks

    def context(self) -> ssl.SSLContext:
        """The context for a new connection. If the new files are unusable, as while only one of two is replaced, the
        old one.
        """
        marks = self._marks_now()
        if marks == self._marks:
            return self._context
        try:
            self._context = _new_context(self._options)
        except OSError as error:
            # Retried with the next connection, but logged once.
            if marks != self._marks_told:
                logger.warning(
                    "the TLS files for etcd have changed but are unusable, the old ones stay in use: %s: "
                    "check etcd_ca_file, etcd_cert_file and etcd_key_file",
                    error,
                )
            self._marks_told = marks
        else:
            self._marks = self._marks_told = marks
            logger.info("the TLS files for etcd have changed and are in use")
        return self._context

    def _marks_now(self) -> tuple[tuple[int, ...], ...]:
        options = self._options
        return tuple(_mark(path) for path in (options.ca_file, options.cert_file, options.key_file))


def _mark(path: str) -> tuple[int, ...]:
    """Changes with a file's content; empty for a missing file."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size


def _new_context(options: EtcdOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # etcd's listener distinguishes gRPC from HTTP/1 by this.
    context.set_alpn_protocols(["h2"])
    if options.cert_file:
        context.load_cert_chain(options.cert_file, options.key_file or None)
    return context
