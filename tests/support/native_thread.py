"""A script's beginning, after which the interpreter's finalization aborts the process. Its argument is a folder."""

# A thread of Arrow's pool waits in a Python callback while the process ends. Only the interpreter's finalization frees
# it, and there it takes the GIL: CPython ends the thread, and C++ aborts the process.
THREAD_IN_CALLBACK = """
import io, os, sys, threading
import pyarrow as pa
from pyarrow import dataset, fs, parquet

first, second = sys.argv[1] + "/1.parquet", sys.argv[1] + "/2.parquet"
for path in (first, second):
    parquet.write_table(pa.table({"number": [1]}), path)
gate, key = os.pipe()
is_waiting = threading.Event()

class Blocking(io.FileIO):
    def read(self, size=-1):
        is_waiting.set()
        os.read(gate, 1)
        return super().read(size)

class Files(fs.FSSpecHandler):
    def __init__(self): pass
    def get_type_name(self): return "test"
    def open_input_file(self, path):
        return pa.PythonFile(Blocking(path) if path == second else io.FileIO(path), mode="r")

class Finalized:
    def __del__(self, close=os.close, key=key, tasks=lambda x=os.listdir: x("/proc/self/task")):
        before = tasks()
        close(key)
        while tasks() == before:
            pass

sys.never_freed_before = Finalized()
batches = dataset.FileSystemDataset.from_paths(
    [first, second],
    schema=pa.schema({"number": pa.int64()}),
    format=dataset.ParquetFileFormat(),
    filesystem=fs.PyFileSystem(Files()),
).to_batches()
next(batches)
is_waiting.wait()
"""
