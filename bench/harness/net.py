# SPDX-License-Identifier: MIT
"""The network rows: the servers of all sides at once, and a client that loads them by turns (bench/peers/client/turns.c)."""
import os
import signal
import socket
import subprocess
import tempfile
import time

from . import build, measure

REAL_TIME = 5
FAVOURED = -20  # a nice value: for servers that would keep everybody else from running


def places(pinned):
    """(CPUs of the servers, CPUs of the client)."""
    cpus = sorted(os.sched_getaffinity(0))
    return ({cpus[-1]} if pinned else set(cpus)), ({cpus[0]} if pinned else set(cpus))


def describe(a):
    server, client = places(True)
    how = " at a real-time priority" if a.real_time else ""
    return (f"network rows: one worker on CPU {min(server)}, the client on CPU {min(client)}{how}; by turns, the others stand still; "
            "beside_hogs: two workers, all CPUs")


def prepare(cpus, real_time, favoured=False):
    """What a child does before it becomes the program."""
    def f():
        os.sched_setaffinity(0, cpus)
        if real_time:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REAL_TIME))
        if favoured:
            os.setpriority(os.PRIO_PROCESS, 0, FAVOURED)
    return f


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process):
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    raise build.Failed("the server does not listen")


class Server:
    def __init__(self, program, args, pinned, real_time):
        self.port = free_port()
        self.out = tempfile.TemporaryFile()
        args = [x.replace("PORT", str(self.port)) for x in args]
        self.process = subprocess.Popen([program, *args], stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.DEVNULL,
                                        env=dict(os.environ, GOMAXPROCS="1"),
                                        preexec_fn=prepare(places(pinned)[0], real_time and pinned, real_time and not pinned))

    def ready(self):
        wait_for(self.port, self.process)

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.out.seek(0)
        lines = measure._parse(self.out.read().decode(errors="replace"))
        self.out.close()
        return lines


def load(a, row, client, servers, result):
    """Runs the client; its lines, or the reason why there are none in the result."""
    who = [f"{s.port}:{s.process.pid}" for s in servers]
    argv = [client, *row.load, *who]
    real_time = a.real_time or not row.pinned  # beside tasks that compute on all CPUs a client without a priority would measure itself
    try:
        p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=a.timeout,
                           preexec_fn=prepare(places(row.pinned)[1], real_time))
    except subprocess.TimeoutExpired:
        result.status = f"no end after {a.timeout:g} s"
        return {}
    except subprocess.SubprocessError:
        result.status = "no right to a real-time priority (run it as root)"
        return {}
    if p.returncode:
        result.status = p.stderr.strip().split("\n")[-1][:120] or f"client: exit {p.returncode}"
        return {}
    return measure._parse(p.stdout)


def run(a, programs, row, tick):
    """{side: Result} of one round."""
    tick()
    servers, shared = {}, measure.Result()
    lines, own = {}, {}
    try:
        client = build.Builder(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), a.build).client()
        for side, program in programs.items():
            servers[side] = Server(program, row.commands[side].split(), row.pinned, a.real_time)
        for s in servers.values():
            s.ready()
        lines = load(a, row, client, list(servers.values()), shared)
    except (build.Failed, OSError, subprocess.SubprocessError) as e:
        shared.status = str(e)
    finally:
        own = {side: s.end() for side, s in servers.items()}
    results = {}
    for i, side in enumerate(programs):
        r = results[side] = measure.Result()
        r.status = shared.status
        r.lines = {name.split(".", 1)[1]: v for name, v in lines.items() if name.split(".", 1)[0] == str(i)}
        r.lines.update(own.get(side, {}))
    return results
