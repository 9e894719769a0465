"""What `make bench` reads from the output of each benchmark. The samples are real ones."""

# ruff: noqa: E501 - as printed

import pytest

from benchmarks import bench
from benchmarks.bench import Row

TASKS = """
16 trivial tasks, 2 slots, /usr/bin/python3; best of 1
blocks in turns; load 0.7 on 2 processors

                                       tasks/s  of the limit  CPU ms/task  × the limit's
subprocess in two threads (the limit)    155.9          1.00         12.9  1.00
Ludwig, folder drive                      41.9          0.27         40.5  3.15
Ludwig, SMB drive                         36.6          0.23         45.4  3.53
HyperQueue                                15.9          0.10         14.0  1.09
Grid Engine, qsub -t                       1.9          0.01        161.2  12.54
skipped: slurm: slurmd runs as root
"""

LATENCY = """
/usr/bin/python3; load 0.3 on 2 processors

                                          p50 ms  p99 ms  of
end to next begin, subprocess.run              7       8  5
submit to first process, folder               24      24  1
free slot to next process, folder             18      21  5
stop to dead process, folder                 236     236  1
agent restart to log streaming, folder       228     228  3
silent node to running elsewhere, folder     423     449  3
submit to first process, SMB                  53      53  1
free slot to next process, SMB                22      26  5
stop to dead process, SMB                      2       2  1
agent restart to log streaming, SMB          284     286  3
silent node to running elsewhere, SMB        497     529  3
"""

MAKESPAN = """
24 tasks, 9 slots on 4 nodes; load 0.3 on 2 processors

                       optimum  greedy ×  Ludwig     ×  fixed chunks  ×
seed 0, longest 3.8 s    1.9 s      1.20   4.6 s  2.43         4.8 s  2.55
"""

RESULTS = """
10000 runs, 1 CSV files of 100 rows each
drive                                 time    ratio       frame      memory   of it
folder   obvious loop              3.220 s     1.0×     24.0 MB     93.4 MB   3.89×
folder   first call                0.555 s     5.8×     55.8 MB     98.8 MB   1.77×
folder   second call               0.122 s    26.4×     55.8 MB     86.9 MB   1.56×
folder   second call, jobs=[1]     0.112 s    28.8×     55.8 MB     87.0 MB   1.56×
smb      obvious loop              4.883 s     1.0×     24.0 MB    105.7 MB   4.41×
smb      obvious, smbclient       15.143 s     0.3×     24.0 MB    106.1 MB   4.42×
smb      first call                0.890 s     5.5×     55.8 MB    109.3 MB   1.96×
smb      second call               0.226 s    21.6×     55.8 MB    100.6 MB   1.80×
smb      second call, jobs=[1]     0.119 s    41.1×     55.8 MB    104.1 MB   1.87×
"""

IDLE = """
idle for 6 s: 1 heartbeats
processor  -0.000 % of a core   (limit 0.5 %)
memory     59.1 MB          (limit 80 MB)
requests   8 SMB requests, 8.0 a heartbeat
threads    10
"""

DRIVE = """
folder drive; 300 bytes a file, best of 1 blocks, in turns

                      folder/s   range   cpu µs           os/s     ×   cpu µs
create                  31,949    1.0x       31         54,272  0.59       18
publish                  3,731    1.0x      141          3,983  0.94      119
read                    53,184    1.0x       19        159,923  0.33      6.2
append                  76,868    1.0x       13        295,510  0.26      3.4
list 10,000                294    1.0x    3,398            334  0.88    2,995

SMB drive, signed; the server is on this machine

                         smb/s   range   cpu µs    smbclient/s     ×   cpu µs  smbprotocol/s     ×   cpu µs
create                   3,925    1.0x       51          2,179  1.80                     768  5.11      838
publish                  1,256    1.0x      132            819  1.53                     314  3.99    2,354
read                     9,336    1.0x       49          2,793  3.34                     973  9.60      827
append                   6,628    1.0x       54                                          916  7.23      851
list 10,000                 11    1.0x    7,996                                          4.7  2.43  126,365
"""

SIMULATE = """
requests at the file server, tasks of 60 s

nodes   tasks            how they look  requests/s  server
8                                 idle           4    0.0%
8       1,000                    today          96    0.3%
8       1,000  busy nodes look lightly          41    0.1%
8       1,000    … and 16 look for all          41    0.1%
32                                idle          17    0.1%
32     10,000                    today         860    9.4%
32     10,000  busy nodes look lightly         183    0.5%
32     10,000    … and 16 look for all         162    0.4%


makespan of a heavy-tailed sweep on unequal nodes, and the loss of a tenth of them

nodes  tasks  optimum  Ludwig ×  fixed ×  recovered in  makespan ×  lost first: in  ×
8        800  2,024 s     1.179     4.87         955 s       1.179            58 s  1.203
32     3,200  1,811 s     1.165     5.74         904 s       1.186            56 s  1.170
"""


def test_tasks() -> None:
    rows = list(bench.of_tasks(TASKS))
    assert rows[0] == Row(
        "tasks/s: subprocess in two threads (the limit)",
        "155.9",
        "1.00 of the limit; 12.9 ms CPU, 1.00 ×",
    )
    assert rows[1].target == "≥ 0.90" and rows[2].target == "≥ 0.75"
    assert [row.figure for row in rows] == ["155.9", "41.9", "36.6", "15.9", "1.9", ""]
    assert rows[-1].what == "tasks/s: skipped: slurm: slurmd runs as root"


def test_latency() -> None:
    rows = list(bench.of_latency(LATENCY))
    assert len(rows) == 11
    assert rows[2] == Row("free slot to next process, folder", "18 ms", "p99 21 ms of 5")


def test_makespan() -> None:
    (row,) = bench.of_makespan(MAKESPAN)
    assert row.what == "makespan: seed 0, longest 3.8 s"
    assert row.figure == "4.6 s"
    assert row.against == "2.43 × optimum; greedy 1.20 ×, fixed chunks 2.55 ×"


def test_results() -> None:
    rows = {row.what: row for row in bench.of_results(RESULTS)}
    assert len(rows) == 9
    first, second = (rows[f"results: {which} call, smb"] for which in ("first", "second"))
    assert first.figure == "0.890 s"
    assert first.against == "5.5× as fast as the obvious loop; memory 1.96× the frame"
    assert (first.target, second.target) == ("≥ 3×; ≤ 2×", "≥ 20×; ≤ 2×")
    assert rows["results: obvious loop, folder"].target == ""


def test_idle() -> None:
    rows = list(bench.of_idle(IDLE))
    assert [row.what for row in rows] == [
        "idle: processor", "idle: memory", "idle: requests", "idle: threads",
    ]  # fmt: skip
    assert rows[1] == Row("idle: memory", "59.1 MB", "", "80 MB")
    assert rows[2] == Row("idle: requests", "8 SMB requests, 8.0 a heartbeat", "", "")


def test_drive_names_what_it_is_beside() -> None:
    """Samba's client cannot append: the next column must not be taken for it."""
    rows = {row.what: row for row in bench.of_drive(DRIVE)}
    assert rows["create, folder drive"] == Row("create, folder drive", "31,949/s", "0.59 × os")
    assert rows["create, SMB drive"].against == "1.80 × smbclient"
    assert rows["append, SMB drive"].against == "7.23 × smbprotocol"
    assert rows["list 10,000, SMB drive"].against == "2.43 × smbprotocol"
    assert len(rows) == 10


def test_simulate() -> None:
    rows = list(bench.of_simulate(SIMULATE))
    assert rows[0] == Row("simulated: 8, idle", "4 req/s", "0.0% busy")
    assert rows[5] == Row("simulated: 32, 10,000, today", "860 req/s", "9.4% busy")
    assert rows[-1] == Row(
        "simulated makespan, 32 nodes",
        "1.165 × optimum",
        "fixed 5.74 ×; a tenth dies: 1.186 ×, back in 904 s",
        "≤ 1.1 ×",
    )
    assert len(rows) == 10


def test_more_than_the_server_can_do_is_still_a_row() -> None:
    line = "300    10,000                    today      54,119   118.7%  more than it can do\n"
    (row,) = bench.of_simulate(line)
    assert row == Row("simulated: 300, 10,000, today", "54,119 req/s", "118.7% busy")


@pytest.mark.parametrize("benchmark", bench.BENCHMARKS, ids=lambda one: one.name)
def test_other_text_gives_no_rows(benchmark: bench.Benchmark) -> None:
    assert list(benchmark.read("\nnothing  to  see\n")) == []
