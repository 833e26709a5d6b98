# SPDX-License-Identifier: MIT
"""Runs one program once: a time-out, its lines, and what the kernel says it used."""
import os
import select
import signal
import subprocess
import tempfile
import time


class Result:
    def __init__(self):
        self.lines = {}      # name: (value, unit)
        self.status = "ok"   # or why there is no figure
        self.wall_ms = 0.0
        self.cpu_ms = 0.0    # of the whole process, start-up included: the same on every side
        self.switches = 0


def free_mib():
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            for line in f:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) // 1024
    except OSError:
        pass
    return 1 << 30


def _parse(out):
    lines = {}
    for line in out.splitlines():
        parts = line.split("\t")
        if len(parts) == 3:
            try:
                lines[parts[0].strip()] = (float(parts[1]), parts[2])
            except ValueError:
                pass
    return lines


def _wait(pid, seconds, tick):
    """Waits for the process; kills its group when the time is over. Returns (exit status, rusage, timed out)."""
    end = time.monotonic() + seconds
    fd = os.pidfd_open(pid)
    try:
        late = False
        while True:
            left = end - time.monotonic()
            if left <= 0:
                late = True
                os.killpg(pid, signal.SIGKILL)
                break
            if select.select([fd], [], [], min(left, 1.0))[0]:
                break
            tick()
    finally:
        os.close(fd)
    _, status, usage = os.wait4(pid, 0)
    return status, usage, late


def run(argv, env, cpu, seconds, tick):
    """cpu: the CPU to pin the program to, or None."""
    result = Result()
    pin = (lambda: os.sched_setaffinity(0, {cpu})) if cpu is not None else None
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        t = time.monotonic()
        proc = subprocess.Popen(argv, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                start_new_session=True, preexec_fn=pin)
        try:
            status, usage, late = _wait(proc.pid, seconds, tick)
        except BaseException:
            # Interrupted: nothing of ours goes on running.
            try:
                os.killpg(proc.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            proc.wait()
            raise
        proc.returncode = os.waitstatus_to_exitcode(status)
        result.wall_ms = (time.monotonic() - t) * 1e3
        result.cpu_ms = (usage.ru_utime + usage.ru_stime) * 1e3
        result.switches = usage.ru_nvcsw + usage.ru_nivcsw
        out.seek(0)
        err.seek(0)
        result.lines = _parse(out.read().decode(errors="replace"))
        said = [x for x in err.read().decode(errors="replace").splitlines() if x.strip()]
    if late:
        result.status = f"no end after {seconds:g} s"
    elif proc.returncode < 0:
        result.status = f"killed by {signal.Signals(-proc.returncode).name}"
    elif proc.returncode:
        result.status = f"exit {proc.returncode}"
    if result.status != "ok" and said:
        result.status += ": " + said[0][:120]
    return result
