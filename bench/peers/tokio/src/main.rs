// SPDX-License-Identifier: MIT
// Benchmarks of Tokio. Prints "bench<TAB>value<TAB>unit" lines.
// usage: tokiobench <bench> [args]
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, Mutex, Notify, Semaphore};

fn out(b: &str, v: f64, u: &str) { println!("{}\t{:.1}\t{}", b, v, u); }
// std::hint::black_box and std::future::poll_fn are newer than the compiler of Debian 12
fn keep(x: u64) -> u64 { unsafe { std::ptr::read_volatile(&x) } }
struct PollFn<F>(F);
impl<F> Unpin for PollFn<F> {}
impl<T, F: FnMut(&mut std::task::Context<'_>) -> Poll<T>> Future for PollFn<F> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<T> { (self.0)(cx) }
}
fn poll_fn<T, F: FnMut(&mut std::task::Context<'_>) -> Poll<T>>(f: F) -> PollFn<F> { PollFn(f) }
fn nsop(d: Duration, n: usize) -> f64 { d.as_nanos() as f64 / n as f64 }
fn cur() -> Runtime { Builder::new_current_thread().enable_all().build().unwrap() }
fn multi(w: usize) -> Runtime { Builder::new_multi_thread().worker_threads(w).enable_all().build().unwrap() }
fn rt(w: usize) -> Runtime { if w == 0 { cur() } else { multi(w) } }
fn rname(w: usize) -> String { if w == 0 { "ct".into() } else { format!("{}w", w) } }
fn rss() -> i64 {
    let s = std::fs::read_to_string("/proc/self/statm").unwrap();
    s.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap() * 4096
}
fn usage() -> (f64, f64) {
    unsafe {
        let mut u: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut u);
        ((u.ru_utime.tv_sec + u.ru_stime.tv_sec) as f64 * 1e3 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) as f64 / 1e3,
         u.ru_maxrss as f64 / 1024.0)
    }
}
// block_on runs its future outside of the workers; run everything in a spawned task instead
fn run<F>(w: usize, f: F) -> F::Output where F: Future + Send + 'static, F::Output: Send + 'static {
    let r = rt(w);
    let x = r.block_on(async move { tokio::spawn(f).await.unwrap() });
    r.shutdown_background();
    x
}

struct Wg { n: AtomicUsize, notify: Notify }
impl Wg {
    fn new(n: usize) -> Arc<Wg> { Arc::new(Wg { n: AtomicUsize::new(n), notify: Notify::new() }) }
    fn done(&self) { if self.n.fetch_sub(1, Ordering::AcqRel) == 1 { self.notify.notify_one(); } }
    async fn wait(&self) { while self.n.load(Ordering::Acquire) != 0 { self.notify.notified().await; } }
}

// a bare yield: wake self, return pending once (tokio::task::yield_now defers the wake until the driver has run)
struct Y(bool);
impl Future for Y {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<()> {
        if self.0 { Poll::Ready(()) } else { self.0 = true; cx.waker().wake_by_ref(); Poll::Pending }
    }
}

fn switch(w: usize) {
    const N: usize = 5_000_000;
    let d = run(w, async {
        let t = Instant::now();
        let a = tokio::spawn(async { for _ in 0..N { tokio::task::yield_now().await } });
        let b = tokio::spawn(async { for _ in 0..N { tokio::task::yield_now().await } });
        a.await.unwrap(); b.await.unwrap();
        t.elapsed()
    });
    out(&format!("switch_{}", rname(w)), nsop(d, 2 * N), "ns/switch");
    let d = run(w, async {
        let t = Instant::now();
        let a = tokio::spawn(async { for _ in 0..N { Y(false).await } });
        let b = tokio::spawn(async { for _ in 0..N { Y(false).await } });
        a.await.unwrap(); b.await.unwrap();
        t.elapsed()
    });
    out(&format!("switch_wakebyref_{}", rname(w)), nsop(d, 2 * N), "ns/switch");
}

fn yield_many(w: usize) {
    const TASKS: usize = 1000;
    const PER: usize = 5000;
    let d = run(w, async {
        let t = Instant::now();
        let hs: Vec<_> = (0..TASKS)
            .map(|_| tokio::spawn(async { for _ in 0..PER { tokio::task::yield_now().await } }))
            .collect();
        for h in hs { h.await.unwrap(); }
        t.elapsed()
    });
    out(&format!("yield_many_{}", rname(w)), nsop(d, TASKS * PER), "ns/switch");
}

// A chain of dependent multiplications, as bn_work in common/bench.h.
#[inline(never)]
fn work(steps: usize) -> u64 {
    let mut x = steps as u64;
    for _ in 0..steps { x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); }
    keep(x)
}
fn work_per_us() -> f64 {
    let mut best = u128::MAX;
    for _ in 0..50 {
        let t = Instant::now();
        work(100_000);
        best = best.min(t.elapsed().as_nanos());
    }
    100_000.0 * 1e3 / best as f64
}
// Two stages with ns of work for each item: is the second core used?
fn pipeline(w: usize, ns: usize) {
    const N: usize = 200_000;
    let steps = (work_per_us() * ns as f64 / 1e3) as usize;
    let d = run(w, async move {
        let (tx, mut rx) = mpsc::channel::<u64>(128);
        let t = Instant::now();
        tokio::spawn(async move { for i in 0..N { work(steps); tx.send(i as u64).await.unwrap(); } });
        let mut k = 0;
        while rx.recv().await.is_some() { work(steps); k += 1; }
        assert_eq!(k, N);
        t.elapsed()
    });
    out(&format!("pipeline_{}ns_{}", ns, rname(w)), nsop(d, N), "ns/item");
}

// 1,000 parked tasks for 3 s: context switches and CPU time of the process.
fn idle(w: usize) {
    fn switches() -> i64 {
        unsafe {
            let mut u: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut u);
            (u.ru_nvcsw + u.ru_nivcsw) as i64
        }
    }
    run(w, async {
        let sem = Arc::new(Semaphore::new(0));
        for _ in 0..1000 {
            let s = sem.clone();
            tokio::spawn(async move { let _ = s.acquire().await; });
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (s0, (c0, _)) = (switches(), usage());
        tokio::time::sleep(Duration::from_secs(3)).await;
        out("idle_switches", (switches() - s0) as f64, "switches");
        out("idle_cpu", usage().0 - c0, "cpu-ms");
        sem.close();
    });
}

fn spawn_join(w: usize) {
    const N: usize = 2_000_000;
    let d = run(w, async {
        let t = Instant::now();
        for _ in 0..N { tokio::spawn(async {}).await.unwrap(); }
        t.elapsed()
    });
    out(&format!("spawn_join_{}", rname(w)), nsop(d, N), "ns/task");
}

fn spawn_batch(w: usize) {
    const N: usize = 1_000_000;
    let d = run(w, async {
        let wg = Wg::new(N);
        let t = Instant::now();
        for _ in 0..N { let g = wg.clone(); tokio::spawn(async move { g.done() }); }
        wg.wait().await;
        t.elapsed()
    });
    out(&format!("spawn_batch_1M_{}", rname(w)), nsop(d, N), "ns/task");
}

fn pingpong(w: usize) {
    const N: usize = 2_000_000;
    let d = run(w, async {
        let (atx, mut arx) = mpsc::channel::<usize>(1);
        let (btx, mut brx) = mpsc::channel::<usize>(1);
        tokio::spawn(async move { while let Some(v) = arx.recv().await { if btx.send(v).await.is_err() { break } } });
        let t = Instant::now();
        for i in 0..N { atx.send(i).await.unwrap(); brx.recv().await.unwrap(); }
        t.elapsed()
    });
    out(&format!("chan_unbuf_pingpong_{}", rname(w)), nsop(d, N), "ns/roundtrip");
}

fn spsc(w: usize) {
    const N: usize = 10_000_000;
    let d = run(w, async {
        let (tx, mut rx) = mpsc::channel::<u64>(128);
        let t = Instant::now();
        tokio::spawn(async move { for i in 0..N { tx.send(i as u64).await.unwrap(); } });
        let mut s = 0u64;
        while let Some(v) = rx.recv().await { s = s.wrapping_add(v); }
        keep(s);
        t.elapsed()
    });
    out(&format!("chan_buf_spsc_{}", rname(w)), nsop(d, N), "ns/item");
}

// Tokio has no MPMC channel: an mpsc whose receiver is shared under the async mutex (the documented way)
fn mpmc(w: usize) {
    const PER: usize = 1_000_000;
    let d = run(w, async {
        let (tx, rx) = mpsc::channel::<u64>(128);
        let rx = Arc::new(Mutex::new(rx));
        let t = Instant::now();
        let mut hs = vec![];
        for _ in 0..4 {
            let tx = tx.clone();
            tokio::spawn(async move { for i in 0..PER { tx.send(i as u64).await.unwrap(); } });
            let rx = rx.clone();
            hs.push(tokio::spawn(async move {
                let mut s = 0u64;
                loop { let v = rx.lock().await.recv().await; match v { Some(v) => s = s.wrapping_add(v), None => break } }
                keep(s);
            }));
        }
        drop(tx);
        for h in hs { h.await.unwrap(); }
        t.elapsed()
    });
    out(&format!("chan_mpmc_{}", rname(w)), nsop(d, 4 * PER), "ns/item");
}

fn select2(w: usize, cap: usize) {
    const PER: usize = 2_000_000;
    let d = run(w, async move {
        let (atx, mut arx) = mpsc::channel::<u64>(cap);
        let (btx, mut brx) = mpsc::channel::<u64>(cap);
        let t = Instant::now();
        tokio::spawn(async move { for i in 0..PER { atx.send(i as u64).await.unwrap(); } });
        tokio::spawn(async move { for i in 0..PER { btx.send(i as u64).await.unwrap(); } });
        let mut s = 0u64;
        let mut flip = false;
        for _ in 0..2 * PER {
            // what select! expands to: poll each branch, start alternating for fairness
            flip = !flip;
            let v = poll_fn(|cx| {
                if flip {
                    if let Poll::Ready(Some(v)) = arx.poll_recv(cx) { return Poll::Ready(v) }
                    if let Poll::Ready(Some(v)) = brx.poll_recv(cx) { return Poll::Ready(v) }
                } else {
                    if let Poll::Ready(Some(v)) = brx.poll_recv(cx) { return Poll::Ready(v) }
                    if let Poll::Ready(Some(v)) = arx.poll_recv(cx) { return Poll::Ready(v) }
                }
                Poll::Pending
            }).await;
            s = s.wrapping_add(v);
        }
        keep(s);
        t.elapsed()
    });
    out(&format!("select_2_cap{}_{}", cap, rname(w)), nsop(d, 2 * PER), "ns/item");
}

fn mutexc(w: usize) {
    const PER: usize = 500_000;
    let d = run(w, async {
        let m = Arc::new(Mutex::new(0usize));
        let t = Instant::now();
        let mut hs = vec![];
        for _ in 0..8 { let m = m.clone(); hs.push(tokio::spawn(async move { for _ in 0..PER { *m.lock().await += 1; } })); }
        for h in hs { h.await.unwrap(); }
        let d = t.elapsed();
        assert_eq!(*m.lock().await, 8 * PER);
        d
    });
    out(&format!("mutex_contended_{}", rname(w)), nsop(d, 8 * PER), "ns/op");
}

fn mem(w: usize, n: usize) {
    run(w, async move {
        let r0 = rss();
        let sem = Arc::new(Semaphore::new(0)); // stands for "many receivers on one channel"
        let started = Wg::new(n);
        let t = Instant::now();
        for _ in 0..n {
            let (s, g) = (sem.clone(), started.clone());
            tokio::spawn(async move { g.done(); let _ = s.acquire().await; });
        }
        started.wait().await;
        let d = t.elapsed();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let r1 = rss();
        out(&format!("mem_parked_{}", n), (r1 - r0) as f64 / n as f64, "bytes/task");
        out(&format!("create_parked_{}", n), nsop(d, n), "ns/task");
        sem.close();
    });
}
fn mem_oneshot(w: usize, n: usize) {
    // each task parked on its own channel receive (oneshot)
    run(w, async move {
        let r0 = rss();
        let mut txs = Vec::with_capacity(n);
        let started = Wg::new(n);
        for _ in 0..n {
            let (tx, rx) = oneshot::channel::<u64>();
            txs.push(tx);
            let g = started.clone();
            tokio::spawn(async move { g.done(); let _ = rx.await; });
        }
        started.wait().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let r1 = rss();
        out(&format!("mem_parked_oneshot_{}", n), (r1 - r0) as f64 / n as f64, "bytes/task");
        drop(txs);
    });
}

fn sky(tx: mpsc::Sender<u64>, num: u64, size: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if size == 1 { tx.send(num).await.unwrap(); return; }
        let (ctx, mut crx) = mpsc::channel::<u64>(10);
        for i in 0..10 { tokio::spawn(sky(ctx.clone(), num + i * (size / 10), size / 10)); }
        drop(ctx);
        let mut s = 0;
        for _ in 0..10 { s += crx.recv().await.unwrap(); }
        tx.send(s).await.unwrap();
    })
}
fn skynet(w: usize) {
    let d = run(w, async {
        let t = Instant::now();
        let (tx, mut rx) = mpsc::channel(1);
        tokio::spawn(sky(tx, 0, 1_000_000));
        assert_eq!(rx.recv().await.unwrap(), 499999500000);
        t.elapsed()
    });
    out(&format!("skynet_{}", rname(w)), d.as_micros() as f64 / 1e3, "ms");
}

fn timers(w: usize) {
    const N: usize = 1_000_000;
    run(w, async {
        let (c0, _) = usage();
        let wg = Wg::new(N);
        let mut x = 12345u64;
        let t = Instant::now();
        for _ in 0..N {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let ms = 1 + (x >> 33) % 1000;
            let g = wg.clone();
            tokio::spawn(async move { tokio::time::sleep(Duration::from_millis(ms)).await; g.done() });
        }
        let tc = t.elapsed();
        wg.wait().await;
        let d = t.elapsed();
        let (c1, m) = usage();
        out("timers_1M_wall", d.as_millis() as f64, "ms");
        out("timers_1M_create", tc.as_millis() as f64, "ms");
        out("timers_1M_cpu", c1 - c0, "cpu-ms");
        out("timers_1M_maxrss", m, "MiB");
    });
}

fn timer_cancel(w: usize) {
    let d = run(w, async {
        const N: usize = 2_000_000;
        let mut live: Vec<Pin<Box<tokio::time::Sleep>>> = Vec::new();
        let mut x = 12345u64;
        let mut rnd = move |m: u64| { x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (x >> 33) % m };
        for _ in 0..100_000 {
            let mut s = Box::pin(tokio::time::sleep(Duration::from_secs(3600 + rnd(3600))));
            poll_fn(|cx| { let _ = s.as_mut().poll(cx); Poll::Ready(()) }).await;
            live.push(s);
        }
        let ds: Vec<Duration> = (0..4096).map(|_| Duration::from_secs(60 + rnd(7200))).collect();
        let t = Instant::now();
        for i in 0..N {
            let s = tokio::time::sleep(ds[i & 4095]);
            tokio::pin!(s);
            // registration happens at the first poll
            poll_fn(|cx| { let _ = s.as_mut().poll(cx); Poll::Ready(()) }).await;
        }
        let d = nsop(t.elapsed(), N);
        drop(live);
        d
    });
    out(&format!("timer_add_cancel_{}", rname(w)), d, "ns/pair");
}

fn wake() {
    const N: usize = 2000;
    let r = multi(2);
    let (tx, mut rx) = mpsc::channel::<Instant>(64);
    let h = r.spawn(async move {
        let mut lat = Vec::with_capacity(N);
        while let Some(t) = rx.recv().await { lat.push(t.elapsed().as_nanos() as u64); }
        lat
    });
    std::thread::spawn(move || for _ in 0..N { std::thread::sleep(Duration::from_millis(1)); tx.try_send(Instant::now()).unwrap(); });
    let mut lat = r.block_on(h).unwrap();
    lat.sort();
    out("wake_latency_p50", lat[N / 2] as f64, "ns");
    out("wake_latency_p99", lat[N * 99 / 100] as f64, "ns");
}

fn blocking(w: usize) {
    let d = run(w, async {
        const N: usize = 200_000;
        let t = Instant::now();
        for _ in 0..N { tokio::task::spawn_blocking(|| {}).await.unwrap(); }
        nsop(t.elapsed(), N)
    });
    out("blocking_offload", d, "ns/call");
    let d = run(w, async {
        let t = Instant::now();
        let mut hs = vec![];
        for _ in 0..1000 { hs.push(tokio::task::spawn_blocking(|| unsafe { libc::usleep(1000); })); }
        for h in hs { h.await.unwrap(); }
        t.elapsed()
    });
    out("blocking_1000x1ms", d.as_micros() as f64 / 1e3, "ms");
}

#[inline(never)]
fn fibs(n: u32) -> u64 { if n < 2 { n as u64 } else { fibs(n - 1) + fibs(n - 2) } }
fn fib(n: u32, cut: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if n <= cut || n < 2 { return fibs(n); }
        let h = tokio::spawn(fib(n - 1, cut));
        let b = fib(n - 2, cut).await;
        h.await.unwrap() + b
    })
}
fn pfib(w: usize, cut: u32) {
    let d = run(w, async move {
        let t = Instant::now();
        assert_eq!(fib(30, cut).await, 832040);
        t.elapsed()
    });
    out(&format!("parallel_fib30_cut{}_{}", cut, rname(w)), d.as_micros() as f64 / 1e3, "ms");
}

fn echo(w: usize, addr: String) {
    rt(w).block_on(async move {
        let h = tokio::spawn(async move {
            let l = tokio::net::TcpListener::bind(addr).await.unwrap();
            loop {
                let (mut c, _) = l.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut b = [0u8; 1024];
                    loop {
                        match c.read(&mut b).await { Ok(n) if n > 0 => if c.write_all(&b[..n]).await.is_err() { return }, _ => return }
                    }
                });
            }
        });
        h.await.unwrap();
    });
}
fn hello(w: usize, addr: String) {
    const RESP: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nHello World\n";
    rt(w).block_on(async move {
        let h = tokio::spawn(async move {
            let l = tokio::net::TcpListener::bind(addr).await.unwrap();
            loop {
                let (mut c, _) = l.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut b = [0u8; 4096];
                    let mut have = 0;
                    loop {
                        match c.read(&mut b[have..]).await {
                            Ok(n) if n > 0 => {
                                have += n;
                                if b[..have].ends_with(b"\r\n\r\n") { have = 0; if c.write_all(RESP).await.is_err() { return } }
                            }
                            _ => return,
                        }
                    }
                });
            }
        });
        h.await.unwrap();
    });
}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n = |i: usize, d: usize| a.get(i).map(|s| s.parse::<usize>().unwrap()).unwrap_or(d);
    match a[1].as_str() {
        "switch" => switch(n(2, 0)),
        "yield_many" => yield_many(n(2, 0)),
        "pipeline" => pipeline(n(2, 2), n(3, 1000)),
        "idle" => idle(n(2, 2)),
        "spawn_join" => spawn_join(n(2, 0)),
        "spawn_batch" => spawn_batch(n(2, 2)),
        "pingpong" => pingpong(n(2, 0)),
        "spsc" => spsc(n(2, 2)),
        "mpmc" => mpmc(n(2, 2)),
        "select2" => select2(n(2, 2), n(3, 1)),
        "mutex" => mutexc(n(2, 2)),
        "mem" => mem(n(3, 2), n(2, 100000)),
        "mem_oneshot" => mem_oneshot(n(3, 2), n(2, 100000)),
        "skynet" => skynet(n(2, 2)),
        "timers" => timers(n(2, 2)),
        "timer_cancel" => timer_cancel(n(2, 0)),
        "wake" => wake(),
        "blocking" => blocking(n(2, 2)),
        "fib" => pfib(n(3, 2), n(2, 1) as u32),
        "echo" => echo(n(3, 0), a[2].clone()),
        "hello" => hello(n(3, 0), a[2].clone()),
        _ => panic!("unknown bench"),
    }
}
