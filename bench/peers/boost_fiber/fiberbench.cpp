// SPDX-License-Identifier: MIT
// Boost.Fiber. argv[2] = number of OS threads (1: round_robin, >1: work_stealing with suspend).
#include "../common/bench.h"
#include <boost/fiber/all.hpp>
#include <atomic>
#include <string>
#include <thread>
#include <vector>
namespace bf = boost::fibers;
using stk = bf::fixedsize_stack; // malloc'ed, no guard page: the lightest one in the box
static int W = 1;
static stk SA(16 * 1024);
template <class F>
static bf::fiber go(F &&f) {
    return bf::fiber(bf::launch::post, std::allocator_arg, SA, std::forward<F>(f));
}
template <class F>
static bf::fiber godisp(F &&f) {
    return bf::fiber(bf::launch::dispatch, std::allocator_arg, SA, std::forward<F>(f));
}

static std::string nm(const char *b) {
    return std::string(b) + "_" + std::to_string(W) + "w";
}
struct Wg {
    bf::mutex m;
    bf::condition_variable cv;
    std::atomic<long> n{0};
    bool fin = false;
    void done() {
        if (n.fetch_sub(1) == 1) {
            std::unique_lock<bf::mutex> l(m);
            fin = true;
            cv.notify_all();
        }
    }
    void wait() {
        std::unique_lock<bf::mutex> l(m);
        cv.wait(l, [&] { return fin; });
    }
};
static void sky(bf::buffered_channel<long> &o, long num, long size) {
    if (size == 1) {
        o.push(num);
        return;
    }
    bf::buffered_channel<long> c(16);
    long s = 0, x;
    std::vector<bf::fiber> v;
    v.reserve(10);
    for (long i = 0; i < 10; i++) v.push_back(go([&c, num, size, i] { sky(c, num + i * (size / 10), size / 10); }));
    for (int i = 0; i < 10; i++) {
        c.pop(x);
        s += x;
    }
    for (auto &f : v) f.join();
    o.push(s);
}

static int fib(int n, int cut) {
    if (n <= cut || n < 2) return bn_fibs(n);
    int a;
    bf::fiber f = go([&a, n, cut] { a = fib(n - 1, cut); });
    int b = fib(n - 2, cut);
    f.join();
    return a + b;
}

static void b_switch() {
    const long n = 5000000;
    int64_t t = bn_now();
    auto f = [] {
        for (long i = 0; i < n; i++) boost::this_fiber::yield();
    };
    auto p = go(f), q = go(f);
    p.join();
    q.join();
    bn_out(nm("switch").c_str(), double(bn_now() - t) / (2 * n), "ns/switch");
}

static void b_spawn_join() {
    const long n = 1000000;
    int64_t t = bn_now();
    for (long i = 0; i < n; i++) go([] {}).join();
    bn_out(nm("spawn_join").c_str(), double(bn_now() - t) / n, "ns/task");
    t = bn_now();
    for (long i = 0; i < n; i++) godisp([] {}).join();
    bn_out(nm("spawn_join_dispatch").c_str(), double(bn_now() - t) / n, "ns/task");
}

static void b_spawn_batch() {
    const long n = 1000000;
    Wg wg;
    wg.n = n;
    int64_t t = bn_now();
    for (long i = 0; i < n; i++) go([&wg] { wg.done(); }).detach();
    wg.wait();
    bn_out(nm("spawn_batch_1M").c_str(), double(bn_now() - t) / n, "ns/task");
}

static void b_pingpong() {
    long x = 0;
    const long n = 1000000;
    bf::unbuffered_channel<long> A, B;
    auto f = go([&] {
        long v;
        while (A.pop(v) == bf::channel_op_status::success) B.push(v);
    });
    int64_t t = bn_now();
    for (long i = 0; i < n; i++) {
        A.push(i);
        B.pop(x);
    }
    bn_out(nm("chan_unbuf_pingpong").c_str(), double(bn_now() - t) / n, "ns/roundtrip");
    A.close();
    f.join();
}

static void b_spsc() {
    long x = 0;
    const long n = 5000000;
    bf::buffered_channel<long> c(128);
    int64_t t = bn_now();
    auto f = go([&] {
        for (long i = 0; i < n; i++) c.push(i);
        c.close();
    });
    long s = 0;
    while (c.pop(x) == bf::channel_op_status::success) s += x;
    bn_out(nm("chan_buf_spsc").c_str(), double(bn_now() - t) / n, "ns/item");
    f.join();
}

static void b_mpmc() {
    const long n = 500000;
    bf::buffered_channel<long> c(128);
    int64_t t = bn_now();
    std::vector<bf::fiber> p, q;
    for (int k = 0; k < 4; k++) {
        q.push_back(go([&] {
            long v, s = 0;
            while (c.pop(v) == bf::channel_op_status::success) s += v;
        }));
        p.push_back(go([&] {
            for (long i = 0; i < n; i++) c.push(i);
        }));
    }
    for (auto &f : p) f.join();
    c.close();
    for (auto &f : q) f.join();
    bn_out(nm("chan_mpmc").c_str(), double(bn_now() - t) / (4 * n), "ns/item");
}

static void b_mutex() {
    const long n = 500000;
    bf::mutex m;
    long cnt = 0;
    std::vector<bf::fiber> p;
    int64_t t = bn_now();
    for (int k = 0; k < 8; k++)
        p.push_back(go([&] {
            for (long i = 0; i < n; i++) {
                m.lock();
                cnt++;
                m.unlock();
            }
        }));
    for (auto &f : p) f.join();
    if (cnt != 8 * n) abort();
    bn_out(nm("mutex_contended").c_str(), double(bn_now() - t) / (8 * n), "ns/op");
}

static void b_mem(long n) {
    static bf::unbuffered_channel<long> A;
    static std::atomic<long> st{0};
    long r0 = bn_rss();
    int64_t t = bn_now();
    for (long i = 0; i < n; i++)
        go([] {
            st++;
            long v;
            A.pop(v);
        }).detach();
    while (st < n) boost::this_fiber::yield();
    double d = bn_now() - t;
    bn_out(("mem_parked_" + std::to_string(n)).c_str(), double(bn_rss() - r0) / n, "bytes/task");
    bn_out(("create_parked_" + std::to_string(n)).c_str(), d / n, "ns/task");
    _exit(0);
}

static void b_skynet() {
    long x = 0;
    int64_t t = bn_now();
    bf::buffered_channel<long> c(2);
    auto f = go([&] { sky(c, 0, 1000000); });
    c.pop(x);
    if (x != 499999500000L) abort();
    bn_out(nm("skynet").c_str(), (bn_now() - t) / 1e6, "ms");
    f.join();
}

static void b_timers() {
    const long n = 1000000;
    double c0 = bn_cpu_ms();
    Wg wg;
    wg.n = n;
    int64_t t = bn_now();
    for (long i = 0; i < n; i++) {
        int ms = 1 + bn_rnd(1000);
        go([&wg, ms] {
            boost::this_fiber::sleep_for(std::chrono::milliseconds(ms));
            wg.done();
        }).detach();
    }
    double tc = (bn_now() - t) / 1e6;
    wg.wait();
    bn_out("timers_1M_wall", (bn_now() - t) / 1e6, "ms");
    bn_out("timers_1M_create", tc, "ms");
    bn_out("timers_1M_cpu", bn_cpu_ms() - c0, "cpu-ms");
    bn_out("timers_1M_maxrss", bn_maxrss_mib(), "MiB");
}

static void b_fib(int cut) {
    int64_t t = bn_now();
    if (fib(30, cut) != 832040) abort();
    bn_out(nm(("parallel_fib30_cut" + std::to_string(cut)).c_str()).c_str(), (bn_now() - t) / 1e6, "ms");
}

static void body(const std::string &b, long arg) {
    if (b == "switch")
        b_switch();
    else if (b == "spawn_join")
        b_spawn_join();
    else if (b == "spawn_batch")
        b_spawn_batch();
    else if (b == "pingpong")
        b_pingpong();
    else if (b == "spsc")
        b_spsc();
    else if (b == "mpmc")
        b_mpmc();
    else if (b == "mutex")
        b_mutex();
    else if (b == "mem")
        b_mem(arg);
    else if (b == "skynet")
        b_skynet();
    else if (b == "timers")
        b_timers();
    else if (b == "fib")
        b_fib(arg ? arg : 1);
    else
        _exit(2);
}

int main(int argc, char **argv) {
    W = argc > 2 ? atoi(argv[2]) : 1;
    std::string b = argc > 1 ? argv[1] : "";
    long arg = argc > 3 ? atol(argv[3]) : 0;
    if (W == 1) {
        body(b, arg);
        _exit(0);
    }
    for (int i = 1; i < W; i++)
        std::thread([] {
            bf::use_scheduling_algorithm<bf::algo::work_stealing>(W, true);
            bf::mutex m;
            bf::condition_variable c;
            std::unique_lock<bf::mutex> l(m);
            c.wait(l, [] { return false; });
        }).detach();
    bf::use_scheduling_algorithm<bf::algo::work_stealing>(W, true);
    body(b, arg);
    _exit(0);
}
