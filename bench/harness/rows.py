# SPDX-License-Identifier: MIT
"""What is run: the sides of the comparison, and for each row the command and the output line of each side."""
import fnmatch

# Column order; also the order within a round.
SIDES = ["weft", "proto", "go", "tokio", "boost", "st", "uv", "raw"]
TITLES = {
    "weft": "weft",
    "proto": "prototype",
    "go": "Go",
    "tokio": "Tokio",
    "boost": "Boost.Fiber",
    "st": "State Thr.",
    "uv": "libuv",
    "raw": "raw",
}


class Row:
    """One line of the table. `runs` maps a side to (arguments, name of the line to read[, environment])."""

    def __init__(self, name, workers, unit, need_mib=0, **runs):
        self.name = name
        self.workers = workers
        self.unit = unit
        self.need_mib = need_mib  # memory that has to be free for it
        self.runs = {side: (run + ({},))[:3] for side, run in runs.items()}


class NetRow(Row):
    """A row of servers under load. All sides are there at once and get the load by turns (net.py); `load` is what the client is told, `line` what it
    prints. Rows with the same load share a run."""

    def __init__(self, name, unit, load, line, server, workers=1, sides=("weft", "raw", "tokio", "go")):
        self.commands = dict(weft=f"{server} {workers} PORT", raw=f"{server} PORT", tokio=f"{server} 127.0.0.1:PORT 0", go=f"{server} 127.0.0.1:PORT")
        super().__init__(name, 1, unit, **{side: cmd(self.commands[side], line) for side in SIDES if side in sides})
        self.load = tuple(load.split())
        self.line = line
        self.server = server
        self.pinned = workers == 1


def cmd(args, line, **env):
    return (tuple(args.split()), line, env)


def _channel(name, args, workers, weft_line, proto_line, go_line, tokio_line, boost=True, tokio_args=None, **more):
    """A row of a channel benchmark: the peers take the worker count as their first argument (Tokio: 0 = current thread)."""
    w = str(workers)
    tail = (" " + args.split(" ", 1)[1]) if " " in args else ""
    verb = args.split(" ")[0]
    tokio_w = "0" if workers == 1 else w
    suffix = "ct" if workers == 1 else w + "w"
    runs = dict(
        weft=cmd(f"{verb} {w}{tail}", f"{weft_line}_{w}w"),
        proto=cmd(f"{verb} {w}{tail}", f"{proto_line}_{w}w"),
        go=cmd(f"{verb} {w}{tail}", f"{go_line}_{w}w"),
        tokio=cmd(f"{verb} {tokio_w}{tail if tokio_args is None else ' ' + tokio_args}", f"{tokio_line}_{suffix}"),
    )
    if boost:
        runs["boost"] = cmd(f"{verb} {w}", f"{go_line}_{w}w")
    runs.update(more)
    return Row(name, workers, "ns", **runs)


def _rows():
    # Boost.Fiber is left out of spawn_batch (half a minute a run) and of fib30 (5 s), and State Threads of timers: they would
    # take most of the time of a round and say nothing new.
    spawn_join_peers = dict(
        go=cmd("spawn_join", "spawn_join"),
        tokio=cmd("spawn_join 0", "spawn_join_ct"),
        boost=cmd("spawn_join 1", "spawn_join_1w"),
        st=cmd("spawn_join", "spawn_join"),
        raw=cmd("pthread", "spawn_join_pthread"),
    )
    skynet_peers = dict(
        proto=cmd("skynet 2", "skynet_2w"),
        go=cmd("skynet", "skynet"),
        tokio=cmd("skynet 2", "skynet_2w"),
        boost=cmd("skynet 2", "skynet_2w"),
    )
    yield Row("switch", 1, "ns", weft=cmd("switch 1", "switch_1w"), proto=cmd("switch 1", "switch_1w"), go=cmd("switch", "switch"),
              tokio=cmd("switch 0", "switch_ct"), boost=cmd("switch 1", "switch_1w"), st=cmd("switch", "switch_usleep0"))
    yield Row("yield_many", 1, "ns", weft=cmd("yield_many 1", "yield_many_1w"), go=cmd("yield_many", "yield_many"),
              tokio=cmd("yield_many 0", "yield_many_ct"))
    yield Row("spawn_join", 1, "ns", weft=cmd("spawn_join 1", "spawn_join_1w"), proto=cmd("spawn_join 1", "spawn_join_1w"),
              **spawn_join_peers)
    yield Row("spawn_join_stack", 1, "ns", weft=cmd("spawn_join_stack 1", "spawn_join_stack_1w"),
              proto=cmd("spawn_join 1", "spawn_join_1w", INLINE="0"), **spawn_join_peers)
    yield Row("spawn_batch", 2, "ns", weft=cmd("spawn_batch 2 1000000", "spawn_batch_2w"), proto=cmd("spawn_batch 2", "spawn_batch_2w"),
              go=cmd("spawn_batch", "spawn_batch_1M"), tokio=cmd("spawn_batch 2", "spawn_batch_1M_2w"))
    for title, n in (("10k", 10_000), ("100k", 100_000), ("5M", 5_000_000)):
        yield Row("spawn_batch_" + title, 2, "ns", weft=cmd(f"spawn_batch 2 {n}", "spawn_batch_2w"))
    for name, cut in (("fib30", 1), ("fib30_cut10", 10)):
        yield Row(name, 2, "ms", weft=cmd(f"fib 2 {cut}", f"fib30_cut{cut}_2w"), proto=cmd(f"fib 2 {cut}", f"fib30_cut{cut}_2w"),
                  go=cmd(f"fib {cut}", f"parallel_fib30_cut{cut}"), tokio=cmd(f"fib {cut} 2", f"parallel_fib30_cut{cut}_2w"))
    yield Row("skynet", 2, "ms", weft=cmd("skynet 2", "skynet_2w"), **skynet_peers)
    yield Row("skynet_scope", 2, "ms", weft=cmd("skynet_scope 2", "skynet_scope_2w"), **skynet_peers)
    yield _channel("pingpong_1w", "pingpong", 1, "pingpong", "pingpong", "chan_unbuf_pingpong", "chan_unbuf_pingpong",
                   st=cmd("pingpong", "cond_pingpong_1w"))
    yield _channel("pingpong_2w", "pingpong", 2, "pingpong", "pingpong", "chan_unbuf_pingpong", "chan_unbuf_pingpong")
    for w in (1, 2):
        yield _channel(f"spsc_{w}w", "spsc", w, "spsc", "spsc", "chan_buf_spsc", "chan_buf_spsc")
    yield _channel("mpmc_2w", "mpmc", 2, "mpmc", "mpmc", "chan_mpmc", "chan_mpmc")
    yield Row("mpsc_2w", 2, "ns", weft=cmd("mpsc 2", "mpsc_2w"))
    for cap, w in ((0, 1), (0, 2), (128, 1), (128, 2)):
        yield _channel(f"select2_cap{cap}_{w}w", f"select2 {cap}", w, f"select2_cap{cap}", f"select2_cap{cap}", f"select_2_cap{cap}",
                       f"select_2_cap{max(cap, 1)}", boost=False, tokio_args=str(max(cap, 1)))
    for w in (1, 2):
        yield _channel(f"pipeline_{w}w", "pipeline 1000", w, "pipeline_1000ns", "", "pipeline_1000ns", "pipeline_1000ns", boost=False,
                       proto=cmd(f"pipe {w} 1000", f"pipe_work1000_{w}w"), tokio=cmd(f"pipeline {w} 1000", f"pipeline_1000ns_{w}w"))
    for w in (1, 2):
        yield _channel(f"mutex_{w}w", "mutex", w, "mutex", "mutex", "mutex_contended", "mutex_contended",
                       **(dict(st=cmd("mutex", "mutex_contended_1w")) if w == 1 else {}))
    yield Row("mutex_wait", 2, "ms", weft=cmd("mutex_wait 2", "mutex_wait"))
    for name, unit, weft, proto, peer in (("mem", "bytes", "mem_parked", "mem_parked_1000000", "mem_parked_1000000"),
                                          ("create_parked", "ns", "create_parked_2w", "create_parked_1000000_2w", "create_parked_1000000")):
        yield Row(name, 2, unit, need_mib=7000, weft=cmd("mem 2 1000000", weft), proto=cmd("mem 2 1000000", proto),
                  go=cmd("mem 1000000", peer), tokio=cmd("mem 1000000 2", peer), boost=cmd("mem 1 1000000", peer),
                  st=cmd("mem 1000000", peer))
    yield Row("mem_mappings", 2, "", need_mib=7000, weft=cmd("mem 2 1000000", "mem_mappings"))
    yield Row("timers", 2, "ms", need_mib=7000, weft=cmd("timers 2", "timers_2w"), proto=cmd("timers 2", "timers_wall_2w"),
              go=cmd("timers", "timers_1M_wall"), tokio=cmd("timers 2", "timers_1M_wall"), uv=cmd("timers", "timers_1M_wall"))
    yield Row("timers_cpu", 2, "ms", need_mib=7000, weft=cmd("timers 2", "timers_2w.cpu"), proto=cmd("timers 2", "timers_cpu_2w"),
              go=cmd("timers", "timers_1M_cpu"), tokio=cmd("timers 2", "timers_1M_cpu"), uv=cmd("timers", "timers_1M_cpu"))
    for name in ("timer_add_cancel", "timer_after_cancel"):
        yield Row(name, 1, "ns", weft=cmd("timer_cancel 1", name + "_1w"), go=cmd("timer_cancel", "timer_add_cancel"),
                  tokio=cmd("timer_cancel 0", "timer_add_cancel_ct"), uv=cmd("timer_cancel", "timer_add_cancel"))
    yield Row("idle", 2, "switches", weft=cmd("idle 2", "idle_switches"), go=cmd("idle", "idle_switches"), tokio=cmd("idle 2", "idle_switches"))
    yield Row("idle_cpu", 2, "ms", weft=cmd("idle 2", "idle_cpu"), go=cmd("idle", "idle_cpu"), tokio=cmd("idle 2", "idle_cpu"))
    for p in ("p50", "p99"):
        yield Row("wake_" + p, 2, "ns", weft=cmd("wake 2", "wake_p50_2w" if p == "p50" else "wake_p99"), go=cmd("wake", f"wake_latency_{p}"),
                  tokio=cmd("wake", f"wake_latency_{p}"), uv=cmd("wake", f"wake_latency_{p}"), raw=cmd("wake", f"wake_latency_condvar_{p}"))
    yield Row("block1000", 2, "ms", weft=cmd("block1000 2", "block1000_2w"), go=cmd("block1000", "blocking_1000x1ms"),
              tokio=cmd("blocking 2", "blocking_1000x1ms"))
    yield Row("pool1000", 2, "ms", weft=cmd("pool1000 2", "pool1000_2w"), tokio=cmd("blocking 2", "blocking_1000x1ms"))
    yield Row("annotated1000", 2, "ms", weft=cmd("annotated1000 2", "annotated1000_2w"), go=cmd("block1000", "blocking_1000x1ms"))
    yield Row("usleep64", 2, "ms", weft=cmd("usleep 2 64", "usleep_2w"))
    yield Row("usleep200_annotated", 2, "ms", weft=cmd("usleep_annotated 2 200", "usleep_annotated_2w"))
    yield Row("block_pair", 1, "ns", weft=cmd("block_pair 1", "block_pair_1w"))
    yield Row("bind", 2, "ns", weft=cmd("bind 2", "bind_2w"))
    for n in (8, 500):
        for p in ("p50", "p99", "max"):
            yield Row(f"hogs{n}_{p}", 2, "ms", weft=cmd(f"hogs 2 {n}", f"hogs_late_{p}"))
    for w in (1, 2):
        yield Row(f"compute_{w}w", w, "ms", weft=cmd(f"compute {w}", f"compute_{w}w"))
    for who in ("high", "normal"):
        for p in ("p50", "p99"):
            yield Row(f"{who}_latency_{p}", 2, "ns", weft=cmd("high_latency 2", f"{who}_latency_{p}"))
    for who in ("low", "normal"):
        yield Row(f"{who}_gap", 2, "ms", weft=cmd("low_gap 2", f"{who}_gap"))
    yield from _net_rows()


def _net_rows():
    for name, server, conns in (("tcp_echo_64", "echo", 64), ("tcp_echo_1000", "echo", 1000), ("http_hello", "hello", 64)):
        for line in ("cpu", "wall"):
            yield NetRow(f"{name}_{line}", "us", f"{server} {conns} 100 30", line, server)
    latencies = ("p50", "p99", "p999")
    yield NetRow("c10k_rss", "MiB", "rate 10000 500 6 5000", "rss", "echo")
    yield NetRow("c10k_stack_used", "bytes", "rate 10000 500 6 5000", "stack_used", "echo", sides=("weft",))
    for line in latencies:
        yield NetRow(f"c10k_{line}", "us", "rate 10000 500 6 5000", line, "echo")
    for line, unit in (("open", "ms"), ("rss", "MiB")):
        yield NetRow(f"conns50k_{line}", unit, "open 50000", line, "echo", sides=("weft", "raw"))
    for line in latencies:
        yield NetRow(f"beside_hogs_{line}", "us", "rate 64 1000 4 1000", line, "echo_hogs", workers=2, sides=("weft", "raw"))


ROWS = list(_rows())


def choose(patterns):
    """The rows that the patterns name: exactly, as a glob, or by their beginning up to an underscore. None: unknown name."""
    if not patterns:
        return ROWS
    chosen = []
    for p in patterns:
        p = p.removeprefix("chan_")
        hits = [r for r in ROWS if r.name == p or fnmatch.fnmatch(r.name, p) or r.name.startswith(p + "_")]
        if not hits:
            return None
        chosen += hits
    return [r for r in ROWS if r in chosen]
