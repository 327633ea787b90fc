"""What TLS connections to etcd are made with. Certificates live short lives: who renews them writes over the files."""

import logging
import os
import ssl

from respool.drivers.etcd_options import EtcdOptions

logger = logging.getLogger(__name__)


class EtcdTls:
    """Reads the files when it is made, and again for a new connection when one of them has changed since.

    Raises OSError (ssl.SSLError is one) when it is made: a file cannot be read, or holds no certificate or key.
    """

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        # Looked at before reading: what is written meanwhile is seen as a change the next time.
        self._marks = self._marks_now()
        self._context = _new_context(options)
        self._marks_told = self._marks

    def context(self) -> ssl.SSLContext:
        """For a connection made now. Files of no use, as when only one of two is written yet, leave it as it was."""
        marks = self._marks_now()
        if marks == self._marks:
            return self._context
        try:
            self._context = _new_context(self._options)
        except OSError as error:
            # They are tried again with the next connection, but told once.
            if marks != self._marks_told:
                logger.warning(
                    "the files for TLS to etcd have changed and cannot be used, the old ones stay in use: %s: "
                    "check etcd_ca_file, etcd_cert_file and etcd_key_file",
                    error,
                )
            self._marks_told = marks
        else:
            self._marks = self._marks_told = marks
            logger.info("the files for TLS to etcd have changed and are in use")
        return self._context

    def _marks_now(self) -> tuple[tuple[int, ...], ...]:
        options = self._options
        return tuple(_mark(path) for path in (options.ca_file, options.cert_file, options.key_file))


def _mark(path: str) -> tuple[int, ...]:
    """What changes with a file's content; nothing for a file that is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size


def _new_context(options: EtcdOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # etcd's listener tells gRPC from HTTP/1 by this.
    context.set_alpn_protocols(["h2"])
    if options.cert_file:
        context.load_cert_chain(options.cert_file, options.key_file or None)
    return context
