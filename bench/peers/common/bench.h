/* SPDX-License-Identifier: MIT */
/* Small helpers shared by the C and C++ peer benchmarks. */
#ifndef PEERS_BENCH_H
#define PEERS_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static inline int64_t bn_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void bn_out(const char *b, double v, const char *u) {
    printf("%s\t%.1f\t%s\n", b, v, u);
    fflush(stdout);
}

static inline long bn_rss(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long a = 0, b = 0;
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &a, &b) != 2) b = 0;
    fclose(f);
    return b * sysconf(_SC_PAGESIZE);
}

static inline double bn_cpu_ms(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static inline double bn_maxrss_mib(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss / 1024.0;
}

static uint64_t bn_seed = 12345;
static inline uint64_t bn_rnd(uint64_t m) {
    bn_seed = bn_seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (bn_seed >> 33) % m;
}

static inline int bn_cmp64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static inline void bn_nofile(void) {
    struct rlimit r = {1000000, 1000000};
    if (setrlimit(RLIMIT_NOFILE, &r)) {
        getrlimit(RLIMIT_NOFILE, &r);
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

/* Work for the pipeline: a chain of dependent multiplications, so that it costs the same wherever the compiler places it.
 * bn_work_per_us says how many steps take a microsecond here, so that "1,000 ns of work" means the same on every side. */
static __attribute__((noinline, unused)) uint64_t bn_work(long steps) {
    uint64_t x = (uint64_t)steps;
    for (long i = 0; i < steps; i++) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    __asm__ volatile("" : : "r"(x));
    return x;
}

static __attribute__((unused)) double bn_work_per_us(void) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 50; i++) {
        int64_t t = bn_now();
        bn_work(100000);
        t = bn_now() - t;
        best = t < best ? t : best;
    }
    return 100000 * 1e3 / (double)best;
}

static __attribute__((noinline, unused)) int bn_fibs(int n) {
    return n < 2 ? n : bn_fibs(n - 1) + bn_fibs(n - 2);
}
static const char bn_resp[] __attribute__((unused)) =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nHello World\n";
#define BN_RESP_LEN (sizeof bn_resp - 1)
#endif
