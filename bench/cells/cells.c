/* SPDX-License-Identifier: MIT */
/* Two designs of a buffered channel's fast path, side by side, without any runtime: what docs/adr/018-channels.md was decided by.
 *
 *   lock   what weft has: one exchange, a ring, a plain store
 *   cells  Koval, Alistarh and Elizarov (PPoPP 2023): senders and receivers draw places by fetch-and-add; the state of a cell decides by
 *          compare-and-swap; each receive lets the buffer grow by one cell. Only what a send and a receive do that need not wait is here, over
 *          a ring of cells instead of linked segments, which is in its favour: no segment is ever allocated, linked or reclaimed.
 *
 *     cc -O2 -o cells cells.c -lpthread && ./cells
 *
 * `burst`: one thread, 64 sends, 64 receives. `pair`: a thread on each side. `crowd`: two on each side. Whoever finds no room or no element
 * backs off, as the lock does. ns an element, best of three. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { CAP = 128, ITEMS = 512000, BURST = 64, RUNS = 3 };
#define LINE _Alignas(64)

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void back_off(int *total) {
    for (int i = 0; i < 32; i++) __builtin_ia32_pause();
    if ((*total += 32) > 4000) {
        sched_yield();
        *total = 0;
    }
}

/* ---- lock ---- */

static struct {
    LINE _Atomic uint32_t held;
    uint32_t count, first;
    long ring[CAP];
} lo;

static void take_lock(void) {
    int total = 0;
    while (atomic_exchange_explicit(&lo.held, 1, memory_order_acquire)) /* pairs with leave_lock */
        do back_off(&total);
        while (atomic_load_explicit(&lo.held, memory_order_relaxed));
}
static void leave_lock(void) {
    atomic_store_explicit(&lo.held, 0, memory_order_release); /* pairs with take_lock */
}

static bool lock_send(long v) {
    take_lock();
    bool room = lo.count < CAP;
    if (room) {
        uint32_t at = lo.first + lo.count++;
        lo.ring[at >= CAP ? at - CAP : at] = v;
    }
    leave_lock();
    return room;
}

static bool lock_recv(long *v) {
    take_lock();
    bool some = lo.count > 0;
    if (some) {
        *v = lo.ring[lo.first];
        lo.first = lo.first + 1 == CAP ? 0 : lo.first + 1;
        lo.count--;
    }
    leave_lock();
    return some;
}

/* ---- cells ---- */

/* A cell's state: its lap, and EMPTY or FULL. A ticket that was drawn is kept until it can be used: that is where a real one parks. */
enum { EMPTY, FULL };
static struct {
    LINE _Atomic uint64_t senders;
    LINE _Atomic uint64_t receivers;
    LINE _Atomic uint64_t end; /* of the buffer: senders below it need not wait */
    LINE struct {
        _Atomic uint64_t state;
        long v;
    } cell[CAP];
} ce;

static _Thread_local uint64_t send_ticket = UINT64_MAX, recv_ticket = UINT64_MAX;

static bool cell_send(long v) {
    if (send_ticket == UINT64_MAX) send_ticket = atomic_fetch_add_explicit(&ce.senders, 1, memory_order_acq_rel);
    uint64_t t = send_ticket, want = t / CAP * 2 + EMPTY;
    if (t >= atomic_load_explicit(&ce.end, memory_order_acquire)) return false; /* pairs with cell_recv */
    if (atomic_load_explicit(&ce.cell[t % CAP].state, memory_order_acquire) != want) return false;
    ce.cell[t % CAP].v = v;
    /* acq_rel: publishes the element; in the real one a receiver or a cancellation may be faster */
    if (!atomic_compare_exchange_strong_explicit(&ce.cell[t % CAP].state, &want, t / CAP * 2 + FULL, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return false;
    send_ticket = UINT64_MAX;
    return true;
}

static bool cell_recv(long *v) {
    if (recv_ticket == UINT64_MAX) recv_ticket = atomic_fetch_add_explicit(&ce.receivers, 1, memory_order_acq_rel);
    uint64_t t = recv_ticket, want = t / CAP * 2 + FULL;
    if (atomic_load_explicit(&ce.cell[t % CAP].state, memory_order_acquire) != want) return false;
    *v = ce.cell[t % CAP].v;
    if (!atomic_compare_exchange_strong_explicit(&ce.cell[t % CAP].state, &want, (t / CAP + 1) * 2 + EMPTY,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    atomic_fetch_add_explicit(&ce.end, 1, memory_order_acq_rel); /* the buffer grows by one; pairs with cell_send */
    recv_ticket = UINT64_MAX;
    return true;
}

/* ---- measuring ---- */

struct design {
    const char *name;
    bool (*send)(long), (*recv)(long *);
};
static const struct design designs[] = {{"lock", lock_send, lock_recv}, {"cells", cell_send, cell_recv}};
static const struct design *d;
static atomic_long sum;

static void *produce(void *n) {
    int total = 0;
    for (long i = 0; i < (long)(intptr_t)n; i++)
        while (!d->send(i)) back_off(&total);
    return NULL;
}
static void *consume(void *n) {
    int total = 0;
    long s = 0, v;
    for (long i = 0; i < (long)(intptr_t)n; i++) {
        while (!d->recv(&v)) back_off(&total);
        s += v;
    }
    atomic_fetch_add(&sum, s);
    return NULL;
}

static double burst(void) {
    int64_t start = now();
    long v = 0;
    for (int i = 0; i < ITEMS; i += BURST) {
        for (int k = 0; k < BURST; k++) d->send(k);
        for (int k = 0; k < BURST; k++) d->recv(&v);
    }
    return (double)(now() - start) / ITEMS;
}

static double threads(int side) {
    pthread_t t[8];
    long each = ITEMS / side;
    atomic_store(&sum, 0);
    int64_t start = now();
    for (int i = 0; i < side; i++) {
        pthread_create(&t[2 * i], NULL, produce, (void *)each);
        pthread_create(&t[2 * i + 1], NULL, consume, (void *)each);
    }
    for (int i = 0; i < 2 * side; i++) pthread_join(t[i], NULL);
    double ns = (double)(now() - start) / (double)(each * side);
    if (atomic_load(&sum) != side * (each * (each - 1) / 2)) printf("elements were lost\n");
    return ns;
}

int main(void) {
    atomic_store(&ce.end, CAP);
    for (int i = 0; i < CAP; i++) atomic_store(&ce.cell[i].state, EMPTY);
    printf("%-6s %8s %8s %8s\n", "", "burst", "pair", "crowd");
    double best[2][3] = {{1e9, 1e9, 1e9}, {1e9, 1e9, 1e9}};
    for (int r = 0; r < RUNS; r++) {
        for (int i = 0; i < 2; i++) {
            d = &designs[i];
            double ns[3] = {burst(), threads(1), threads(2)};
            for (int k = 0; k < 3; k++) best[i][k] = ns[k] < best[i][k] ? ns[k] : best[i][k];
        }
    }
    for (int i = 0; i < 2; i++) printf("%-6s %8.1f %8.1f %8.1f\n", designs[i].name, best[i][0], best[i][1], best[i][2]);
    return 0;
}
