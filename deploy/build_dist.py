"""`make dist`: build the wheel and the sdist twice, and keep them only if both builds are the same to the byte.

The time in the archives is that of the commit, so everybody who builds the same commit gets the same files.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    with tempfile.TemporaryDirectory() as folder:
        builds = [_build(Path(folder) / name) for name in ("once", "again")]
        differing = sorted(
            name for name in builds[0] if builds[0][name][1] != builds[1].get(name, (None, ""))[1]
        )
        if differing or builds[0].keys() != builds[1].keys():
            print(f"not reproducible: {', '.join(differing)} differ between two builds")
            return 1
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name, (path, digest) in sorted(builds[0].items()):
            _check_contents(path)
            shutil.copy(path, target / name)
            print(f"{digest}  {target / name}")
    return 0


def _build(folder: Path) -> dict[str, tuple[Path, str]]:
    """The files built, by name: where they are, and their SHA-256."""
    epoch = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return {
        path.name: (path, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.iterdir()
    }


def _check_contents(path: Path) -> None:
    """The package, its licence, and nothing that a build leaves behind."""
    if path.suffix == ".whl":
        names = zipfile.ZipFile(path).namelist()
        needed = ["respool/__init__.py", "respool/py.typed", "pyspark_respool/__init__.py"]
    else:
        with tarfile.open(path) as archive:
            names = [name.split("/", 1)[-1] for name in archive.getnames()]
        needed = ["src/respool/__init__.py", "pyproject.toml", "README.md", "LICENSE"]
    missing = [name for name in needed if name not in names]
    odd = [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".log"))]
    if missing or odd:
        raise SystemExit(f"{path.name}: missing {missing}, out of place {odd[:5]}")


if __name__ == "__main__":
    sys.exit(main())
