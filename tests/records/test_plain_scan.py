from records.scan_contract import ScannerContract
from respool.records.plain_scan import PlainScanner

SCANNER = PlainScanner()


class TestPlainScanner(ScannerContract):
    scanner = SCANNER
