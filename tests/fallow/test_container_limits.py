"""The limits of a container count, not the size of its machine: both versions of cgroups."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallow.system.container_limits import read_cpu_limit, read_memory_limit

GIB = 1 << 30
RAM = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
CORES = len(os.sched_getaffinity(0))
V1_MEMORY = Path("/sys/fs/cgroup/memory")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, RAM),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, RAM),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GIB}\n"}, GIB),
        # The pod's limit is below the container's own.
        (
            {
                "proc/self/cgroup": "0::/pod/container\n",
                "sys/fs/cgroup/pod/memory.max": f"{GIB}\n",
                "sys/fs/cgroup/pod/container/memory.max": f"{2 * GIB}\n",
            },
            GIB,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/pod\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{GIB}\n",
            },
            GIB,
        ),
        # A container sees its own cgroup at the top, whatever path the host gives it.
        (
            {
                "proc/self/cgroup": "4:memory:/kubepods/pod1/abc\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
            },
            GIB,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{RAM * 4}\n"}, RAM),
    ],
)
def test_memory_is_the_least_of_all_cgroups_and_the_ram(
    tmp_path: Path, files: dict[str, str], limit: int
) -> None:
    assert read_memory_limit(write(tmp_path, files)) == limit


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, CORES),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, CORES),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "1:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            CORES,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "20000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
    ],
)
def test_cores_are_the_quota_rounded_up(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    assert read_cpu_limit(write(tmp_path, files)) == cores


@pytest.fixture
def group() -> Iterator[Path]:
    """Make a real cgroup of version 1 with 1 GiB; skip where there is none to make."""
    folder = V1_MEMORY / f"fallow-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this machine does not let us make a cgroup with a memory limit")
    (folder / "memory.limit_in_bytes").write_text(str(GIB))
    yield folder
    folder.rmdir()


def test_the_engine_takes_half_of_what_a_real_cgroup_allows(group: Path, tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid()))\n"
        "from fallow.settings import load; from warehouse.lake import Warehouse\n"
        "settings = load(environ={}, flags={'home': sys.argv[2]}).settings\n"
        "with Warehouse.open(settings, write=True) as wh:\n"
        "    sql = \"SELECT current_setting('memory_limit')\"\n"
        "    print(wh._connection.execute(sql).fetchone()[0])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, group, tmp_path / "home"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "512.0 MiB\n"


_FREED = """
import ctypes, sys
from fallow.system.container_limits import map_large_pieces
class Counts(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
libc = ctypes.CDLL(None)
if not hasattr(libc, "mallinfo2"):
    sys.exit(77)
libc.mallinfo2.restype, libc.malloc.restype = Counts, ctypes.c_void_p
libc.free.argtypes, libc.malloc.argtypes = [ctypes.c_void_p], [ctypes.c_size_t]
map_large_pieces()
libc.free(libc.malloc(8 << 20))
before = libc.mallinfo2().hblks
libc.malloc(1 << 20)
sys.exit(libc.mallinfo2().hblks - before)
"""


def test_a_large_piece_is_mapped_by_itself_after_a_larger_one_was_freed() -> None:
    mapped = subprocess.run([sys.executable, "-c", _FREED], check=False).returncode
    if mapped == 77:
        pytest.skip("another C library than glibc")
    assert mapped == 1
