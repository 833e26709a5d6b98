# SPDX-License-Identifier: MIT
"""Builds weft's program and those of the peers found on this machine. A side that cannot be built gets a reason instead."""
import os
import shutil
import subprocess
import sys

CARGO_REGISTRY = "/usr/share/cargo/registry"  # where Debian's librust-*-dev packages put the sources
GO_1_21 = "/usr/lib/go-1.21/bin/go"  # Debian's golang-1.21-go is not in PATH
GO_ENV = {"GOTOOLCHAIN": "local", "GOROOT": ""}  # this Go itself: it fetches no other, and takes no library of another


class Failed(Exception):
    pass


class Builder:
    def __init__(self, root, build):
        self.root = root
        self.build = build
        self.out = os.path.join(build, "bench")
        self.cc = os.environ.get("CC", "cc")
        self.cxx = os.environ.get("CXX", "c++")
        os.makedirs(self.out, exist_ok=True)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def peer(self, *parts):
        return self.path("bench", "peers", *parts)

    def files(self, *parts, ends):
        d = self.path(*parts)
        return sorted(os.path.join(d, f) for f in os.listdir(d) if f.endswith(ends))

    def run(self, argv, what, cwd=None, env=None, limit=600):
        """Runs a build command; its output goes to a log, the last line of which becomes the reason if it fails."""
        log = os.path.join(self.out, what + ".log")
        with open(log, "w", encoding="utf-8") as f:
            try:
                rc = subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=f, stderr=f, timeout=limit).returncode
            except (OSError, subprocess.TimeoutExpired) as e:
                raise Failed(f"{argv[0]}: {e}") from e
        if rc:
            with open(log, encoding="utf-8", errors="replace") as f:
                lines = [line.strip() for line in f if line.strip()]
            hint = next((x for x in lines if "error" in x.lower() or "undefined reference" in x), lines[-1] if lines else f"exit {rc}")
            raise Failed(f"did not build: {hint[:160]} (all of it: {os.path.relpath(log, self.root)})")

    def stale(self, target, sources):
        if not os.path.exists(target):
            return True
        newest = max(os.path.getmtime(s) for s in sources)
        return newest > os.path.getmtime(target)

    def compile(self, name, compiler, sources, flags, libs):
        if not shutil.which(compiler):
            raise Failed(f"no {compiler} on this machine")
        target = os.path.join(self.out, name)
        deps = sources + [self.peer("common", "bench.h")] + [x for x in libs if os.path.isfile(x)]
        if self.stale(target, deps):
            self.run([compiler, *flags, *sources, "-o", target, *libs], name)
        return target

    def weft(self):
        lib = os.path.join(self.build, "libweft.a")
        if not os.path.exists(lib):
            raise Failed(f"no {os.path.relpath(lib, self.root)}: run make first")
        sources = self.files("bench", "weft", ends=".c")
        return self.compile("weftbench", self.cc, sources, ["-std=gnu11", "-O2", "-I" + self.path("include")], [lib, "-lpthread"])

    def proto(self):
        d = os.path.join(os.path.dirname(self.root), "shared", "prototype")
        if not os.path.isdir(d):
            raise Failed("not beside the project (../shared/prototype)")
        sources = [os.path.join(d, "bench.c"), os.path.join(d, "ctx.S")]
        return self.compile("protobench", self.cc, sources, ["-O2", "-w", "-fno-pie", "-no-pie"], ["-lpthread"])

    def go(self):
        go = _go()
        if not shutil.which(go):
            raise Failed(f"no {go} on this machine (Debian: golang-1.21-go or golang-go)")
        target = os.path.join(self.out, "gobench")
        sources = self.files("bench", "peers", "go", ends=(".go", ".mod"))
        if self.stale(target, sources) or _go_of(target) != _first_line([go, "env", "GOVERSION"], GO_ENV):
            env = dict(os.environ, GOCACHE=os.path.join(self.out, "go-cache"), CGO_ENABLED="1", **GO_ENV)
            self.run([go, "build", "-trimpath", "-o", target, "."], "gobench", cwd=self.peer("go"), env=env)
        return target

    def tokio(self):
        if not shutil.which("cargo"):
            raise Failed("no cargo on this machine (Debian: cargo librust-tokio-dev)")
        if not os.path.isdir(CARGO_REGISTRY):
            raise Failed(f"no {CARGO_REGISTRY} (Debian: librust-tokio-dev)")
        # A copy, because cargo writes its lock file beside the manifest.
        src = os.path.join(self.out, "tokio")
        target = os.path.join(src, "target", "release", "tokiobench")
        sources = [self.peer("tokio", "Cargo.toml"), self.peer("tokio", "src", "main.rs")]
        if self.stale(target, sources):
            os.makedirs(os.path.join(src, "src"), exist_ok=True)
            shutil.copy(sources[0], src)
            shutil.copy(sources[1], os.path.join(src, "src"))
            self.run(["cargo", "build", "--release", "--offline", "--config", 'source.crates-io.replace-with="debian"', "--config",
                      f'source.debian.directory="{CARGO_REGISTRY}"'], "tokiobench", cwd=src)
            os.utime(target)
        return target

    def boost(self):
        flags = ["-std=c++17", "-O2", "-w"]
        return self.compile("fiberbench", self.cxx, [self.peer("boost_fiber", "fiberbench.cpp")], flags,
                            ["-lboost_fiber", "-lboost_context", "-lpthread"])

    def st(self):
        return self.compile("stbench", self.cc, [self.peer("libst", "stbench.c")], ["-O2", "-w"], ["-lst"])

    def uv(self):
        return self.compile("uvbench", self.cc, [self.peer("libuv", "uvbench.c")], ["-O2", "-w"], ["-luv", "-lpthread"])

    def client(self):
        """The load for the network rows."""
        return self.compile("turns", self.cc, [self.peer("client", "turns.c")], ["-O2"], [])

    def raw(self):
        return self.compile("rawbench", self.cc, [self.peer("raw", "rawbench.c")], ["-O2", "-w"], ["-lpthread"])


def build_all(root, build, sides):
    """Returns ({side: program}, {side: reason it is missing})."""
    b = Builder(root, build)
    programs, missing = {}, {}
    for side in sides:
        sys.stderr.write(f"\rbuilding {side} ...\033[K" if sys.stderr.isatty() else f"building {side}\n")
        sys.stderr.flush()
        try:
            programs[side] = getattr(b, side)()
        except Failed as e:
            missing[side] = str(e)
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    return programs, missing


def _first_line(argv, env=None):
    env = dict(os.environ, **(env or {}))
    try:
        text = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20).stdout
        return text.decode(errors="replace").strip().split("\n")[0]
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _go():
    return os.environ.get("GO") or (GO_1_21 if os.access(GO_1_21, os.X_OK) else "go")


def _go_of(program):
    """The version of Go that built a program, as the program itself has it."""
    return _first_line([_go(), "version", program], GO_ENV).rpartition(": ")[2]


def versions(programs):
    """One phrase for each peer whose version can be had."""
    found = []
    if "go" in programs:
        found.append(_go_of(programs["go"]))
    if "tokio" in programs:
        names = [d for d in os.listdir(CARGO_REGISTRY) if d.startswith("tokio-") and d[6].isdigit()]
        found.append(" ".join([*(n.replace("-", " ") for n in sorted(names)), f"({_first_line(['rustc', '--version']).split(' (')[0]})"]))
    for side, package in (("uv", "libuv1-dev"), ("boost", "libboost-fiber-dev"), ("st", "libst-dev")):
        if side in programs and shutil.which("dpkg-query"):
            v = _first_line(["dpkg-query", "-W", "-f", "${Version}", package])
            found.append(f"{package} {v}" if v else package)
    return found
