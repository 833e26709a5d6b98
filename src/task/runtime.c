/* SPDX-License-Identifier: MIT */
/* Starting and stopping. One runtime at a time, in static memory; the phase says where it is:
 *
 *     NONE -> STARTING -> RUNNING              weft_start (STARTING -> NONE: it failed)
 *     RUNNING -> STOPPING -> CLOSING -> NONE   weft_stop (STOPPING stays if a task does not end in time)
 *
 * Each arrow is one CAS, so whoever makes it does the work that goes with it. Stopping: the root is cancelled, everything alive is waited
 * for, then one of the stoppers closes: no plain thread may be inside (foreign_inside), the workers end, the memory goes. A plain
 * thread that spawns at this moment either is counted before the last look, or sees that the root is cancelled. */
#include <sched.h>

#include "block/block.h"
#include "sched/trim.h"
#include "task/config.h"
#include "task/task.h"
#include "time/clock.h"
#include "time/timer.h"

#include "chan/chan.h"
#include "sync/held.h"
#include "io/depart.h"
#include "io/desc.h"

int weft__runtime_phase(void) {
    if (unlikely(weft__load(&weft__forked, acquire)))
        weft__after_fork();                      /* pairs with the release there: another thread may have been first */
    return weft__load(&weft__rt.phase, seq_cst); /* pairs with the stores below; with foreign_spawned before it */
}

static bool change_phase(uint32_t from, uint32_t to) {
    bool won = weft__cas(&weft__rt.phase, &from, to, seq_cst); /* as above */
    if (won) weft__futex_wake(&weft__rt.phase, INT32_MAX);     /* those who wait for the end */
    return won;
}

static struct {
    weft__lock once;
    bool ready;
} outside;

weft__wheel *weft__outside_wheel(void) {
    weft__lock_take(&outside.once);
    if (!outside.ready) weft__wheel_init(&weft__rt.outside, weft__clock_now());
    outside.ready = true;
    weft__lock_leave(&outside.once);
    return &weft__rt.outside;
}

/* ---- configuration ---- */

static int configure(const weft_config *given) {
    weft_config c;
    int err = weft__config_read(given, &c);
    if (err) return err;
    int slots = c.workers ? c.workers : weft__cpu_count();
    weft__rt.slots = slots < WEFT_SLOTS_MAX ? slots : WEFT_SLOTS_MAX;
    weft__rt.id_step = (uint64_t)weft__rt.slots + 1;
    weft__rt.many = weft__rt.slots > 1;
    weft__rt.cxx = weft__eh_here() != NULL;
    weft__held_check(c.flags & WEFT_LOCK_CHECK);
    weft__rt.odd_switch = weft__rt.cxx || weft__hooked();
    weft__rt.ring_turns = !weft__rt.many && !weft__rt.cxx;
    weft__rt.places = c.flags & WEFT_PIN_WORKERS;
    weft__rt.panic_abort = c.flags & WEFT_PANIC_ABORT;
    weft__rt.on_panic = c.on_panic;
    weft__rt.on_task_error = c.on_task_error;
    weft__rt.hook_arg = c.hook_arg;
    weft__rt.default_class = weft__stack_class(c.stack_size);
    weft__shape plain = {.size_class = (uint8_t)(c.flags & WEFT_STACK_ADVISED ? WEFT_STACK_ASK : weft__rt.default_class)};
    weft__store(&weft__rt.plain, plain.needs, relaxed); /* nobody else is there yet */
    weft__stack_measuring = c.flags & (WEFT_STACK_MEASURE | WEFT_STACK_REPORT | WEFT_STACK_ADVISED);
    weft__stack_alone = weft__stack_measuring || weft__san_tasks;
    weft__rt.report_stacks = c.flags & WEFT_STACK_REPORT;
    weft__rt.max_threads = c.max_threads ? c.max_threads : WEFT_THREADS_MAX;
    weft__rt.search = c.search == 0 ? 20 * WEFT_US : c.search < 0 ? 0 : c.search;
    if (weft__rt.search > WEFT_SLICE_MOST) weft__rt.search = WEFT_SLICE_MOST;
    weft__rt.slice = c.slice ? c.slice : 10 * WEFT_MS;
    if (weft__rt.slice > WEFT_SLICE_MOST) weft__rt.slice = WEFT_SLICE_MOST;
    weft__rt.block_threads_max = c.block_threads_max ? c.block_threads_max : 512;
    weft__rt.bound_threads_max = c.bound_threads_max ? c.bound_threads_max : 1000;
    weft__rt.block_idle = c.block_idle ? c.block_idle : 60 * WEFT_SECOND;
    weft__lock_strict(c.search < 0);
    return 0;
}

/* ---- slots ---- */

static size_t slots_bytes(void) {
    size_t page = weft__page_size();
    return ((size_t)weft__rt.slots * sizeof(weft__slot) + page - 1) & ~(page - 1);
}

/* A CPU for each slot; more slots than CPUs share them. */
static void place_slots(void) {
    static weft__place place[WEFT_SLOTS_MAX];
    int n = weft__rt.places ? weft__cpu_places(place, WEFT_SLOTS_MAX, "/sys/devices/system/node") : 0;
    weft__rt.nodes = false;
    if (weft__rt.places && !n) weft__say("WEFT_PIN_WORKERS: the CPUs cannot be told, and no worker is bound to one");
    weft__rt.places = n > 0;
    for (int i = 0; n && i < weft__rt.slots; i++) {
        weft__rt.slot[i].place = place[i % n];
        if (place[i % n].node != place[0].node) weft__rt.nodes = true;
    }
}

static int open_slots(void) {
    weft__rt.slot = weft__vm_reserve(slots_bytes(), weft__page_size());
    if (!weft__rt.slot) return WEFT_ENOMEM;
    int64_t now = weft__clock_now();
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i];
        s->index = i;
        s->lean = (uint16_t)(i + 1);
        s->random = 0x9e3779b9u * (uint32_t)(i + 1) | 1;
        s->budget = WEFT_BUDGET;
        /* ids of slot i are i + 1 modulo slots + 1; those from outside 0 */
        weft__store(&s->last_id, (uint64_t)(i + 1), relaxed); /* no other thread is there yet */
        weft__store(&s->now, weft__since(now, s), relaxed);   /* likewise */
        weft__wheel_init(&s->wheel, now);
    }
    place_slots();
    return 0;
}

/* The first task and one that it waits for can always run: otherwise there is no memory for a runtime. */
static int reserve_stacks(void) {
    weft__stack_cache *c = &weft__rt.slot[0].stacks;
    int cls = weft__rt.default_class;
    weft__stack *a = weft__stack_get(c, cls), *b = a ? weft__stack_get(c, cls) : NULL;
    if (a) weft__stack_put(c, a);
    if (b) weft__stack_put(c, b);
    return b ? 0 : WEFT_ENOMEM;
}

static void close_slots(void) {
    weft__timers_drop(&weft__rt.outside);
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i];
        weft__add(&weft__rt.foreign_spawned, weft__load(&s->spawned, relaxed), relaxed); /* the sums live on, equal */
        weft__add(&weft__rt.foreign_done, weft__load(&s->done, relaxed), relaxed);
        weft__timers_drop(&s->wheel);
        weft__cache_flush(&weft__rt.fresh_slab, &s->fresh);
        weft__cache_flush(&weft__chan_slab, &s->chans);
        weft__cache_flush(&weft__alarm_slab, &s->alarms);
        weft__stack_cache_flush(&s->stacks);
    }
    weft__vm_release(weft__rt.slot, slots_bytes());
    weft__rt.slot = NULL;
}

/* ---- who runs on a stack, for the overflow report ---- */

static void who(weft__stack *st, weft__who *out) {
    weft__task *t = weft__stack_head(st);
    weft__fresh *f = t->inner; /* runs inside, with an identity of its own but no name */
    *out = f ? (weft__who){.id = weft__load(&f->id, relaxed), .fn = (void *)(uintptr_t)f->fn, .site = f->site}
             : (weft__who){.id = t->id, .fn = (void *)(uintptr_t)t->fn, .site = t->site};
    if (!f && t->extra && t->extra->name[0]) out->name = t->extra->name;
}

/* ---- start ---- */

static void clear(void) {
    weft__add(&weft__rt.generation, 1, relaxed);     /* what is of it is published by the phase, or under a lock */
    weft__store(&weft__rt.draining, false, relaxed); /* nobody else is there */
    weft__store(&weft__rt.stopping, false, relaxed);
    weft__store(&weft__rt.no_stacks, false, relaxed);
    weft__store(&weft__rt.idle, 0, relaxed);
    weft__store(&weft__rt.searching, 0, relaxed);
    weft__store(&weft__rt.low_ran, weft__clock_now(), relaxed);
    weft__store(&weft__rt.napper, NULL, relaxed);
    weft__store(&weft__rt.thin, false, relaxed);
    weft__store(&weft__rt.takeovers, 0, relaxed);
    weft__store(&weft__rt.handoffs, 0, relaxed);
    weft__store(&weft__rt.binds, 0, relaxed);
    weft__store(&weft__rt.binds_ahead, 0, relaxed);
    weft__store(&weft__rt.main, NULL, relaxed);
    weft__store(&weft__rt.strays, 0, relaxed);
    weft__store(&weft__rt.hold, 0, relaxed);
    weft__store(&weft__rt.foreign_wakes, 0, relaxed);
    weft__store(&weft__rt.foreign_id, 0, relaxed);
    weft__store(&weft__root.cause, 0, relaxed);
    weft__add(&weft__rt.epoch, 1, seq_cst);
    (void)weft__outside_wheel();
    weft__stack_who = who;
    weft__stack_fiber_drop = weft__san_has_fibers ? weft__san_fiber_drop : NULL;
}

/* A fake one. */
static void clock_moved(void) {
    weft__idle_kick();
    weft__pool_kick();
}

static int start(const weft_config *cfg) {
    int err = configure(cfg);
    if (err) return err;
    clear();
    if (weft__stack_measuring) weft__stack_measure_clear();
    if (weft__rt.report_stacks) weft__report_stacks(false);
    weft__barrier_init();
    weft__cpus_note();
    if ((err = weft__stack_pool_open()) < 0) return err;
    if ((err = open_slots()) < 0) goto no_slots;
    if ((err = reserve_stacks()) < 0) goto no_worker;
    weft__idle_open();
    weft__watch_open();
    weft__departs_open();
    weft__trim_open();
    weft__pool_open(weft__rt.block_threads_max, weft__rt.block_idle);
    weft__bind_open(weft__rt.bound_threads_max);
    weft__clock_moved = clock_moved;
    if ((err = weft__worker_start(weft__idle_slot_take(NULL), false)) < 0) goto no_worker;
    if (weft__worker_start(NULL, false) < 0) weft__idle_mend(true); /* the sentry, or a note that there is none */
    return 0;
no_worker:
    weft__clock_moved = NULL;
    close_slots();
no_slots:
    weft__stack_pool_close();
    return err;
}

int weft_start(const weft_config *cfg) {
    if (weft__self() == &weft__orphan) return WEFT_ETERMINATED;
    (void)weft__runtime_phase(); /* in the child of a fork the parent's runtime is none */
    if (!change_phase(WEFT_PHASE_NONE, WEFT_PHASE_STARTING)) return WEFT_EALREADY;
    int err = start(cfg);
    change_phase(WEFT_PHASE_STARTING, err ? WEFT_PHASE_NONE : WEFT_PHASE_RUNNING);
    return err;
}

/* A plain thread counts itself in, so that no other runtime is started while it looks. */
int weft_workers(void) {
    weft__slot *s = weft__enter();
    if (!s) weft__foreign_enter();
    int phase = s ? WEFT_PHASE_RUNNING : weft__runtime_phase();
    int n = phase == WEFT_PHASE_RUNNING || phase == WEFT_PHASE_STOPPING ? weft__rt.slots : 0;
    if (s)
        weft__leave();
    else
        weft__foreign_leave();
    return n;
}

/* ---- stop ---- */

/* Waits until no root task is alive. */
static int drain(weft_deadline deadline) {
    weft__store(&weft__rt.draining, true, seq_cst); /* pairs with weft__root_done, weft__foreign_done */
    weft__heavy_barrier();
    for (;;) {
        uint32_t seen = weft__load(&weft__rt.drained, acquire); /* pairs with weft__root_drained */
        weft__foreign_enter(); /* another stopper may be about to close: then there is nothing to look at */
        bool over = weft__runtime_phase() != WEFT_PHASE_STOPPING || !weft__root_alive();
        weft__foreign_leave();
        if (over) return 0;
        if (deadline.ns && deadline.ns <= weft__clock_now()) return WEFT_ETIMEDOUT;
        weft__futex_wait(&weft__rt.drained, seen, deadline.ns);
    }
}

/* Nothing is alive, and no plain thread gets in any more. */
static void close_runtime(void) {
    weft__san_acquire(&weft__rt); /* pairs with the end of each task */
    weft__root_drained();         /* other stoppers */
    while (weft__load(&weft__rt.foreign_inside, seq_cst))
        sched_yield(); /* on their way out; pairs with weft__foreign_enter, leave */
    weft__pool_close();
    weft__workers_stop();
    weft__bind_close();
    weft__clock_moved = NULL;
    weft__idle_close();
    weft__departs_close();
    weft__descs_close();
    weft__poll_close();
    close_slots();
    weft__stack_pool_close();
    if (weft__rt.report_stacks) weft__report_stacks(true);
    weft__rt.report_stacks = false;
    weft__store(&weft__root.cause, 0, relaxed); /* scopes that plain threads open from now on are not cancelled */
}

int weft_stop(weft_deadline deadline) {
    if (weft__self() == &weft__orphan) return WEFT_ETERMINATED;
    if (weft__self() != &weft__nobody) return WEFT_EINVAL;
    (void)weft__runtime_phase(); /* as in weft_start */
    weft__foreign_enter();       /* another stopper must not close while we go through the stacks */
    if (change_phase(WEFT_PHASE_RUNNING, WEFT_PHASE_STOPPING)) weft__root_cancel();
    weft__foreign_leave();
    int phase = weft__runtime_phase();
    if (phase == WEFT_PHASE_NONE || phase == WEFT_PHASE_STARTING) return WEFT_ETERMINATED;
    int err = drain(deadline);
    if (err) return err;
    if (change_phase(WEFT_PHASE_STOPPING, WEFT_PHASE_CLOSING)) {
        close_runtime();
        change_phase(WEFT_PHASE_CLOSING, WEFT_PHASE_NONE);
    }
    while (weft__runtime_phase() == WEFT_PHASE_CLOSING) /* somebody else closes it */
        weft__futex_wait(&weft__rt.phase, WEFT_PHASE_CLOSING, 0);
    return 0;
}

/* ---- in the child of a fork ---- */

void weft__runtime_forget(bool release) {
    if (release) weft__vm_release(weft__rt.slot, slots_bytes());
    weft__rt.slot = NULL;
    weft__rt.started = weft__rt.fresh = (weft__inject){0};
    memset(weft__rt.lane, 0, sizeof weft__rt.lane);
    weft__store(&weft__rt.wanting, 0, relaxed); /* nobody else is there */
    outside.ready = false;
    weft__lock_leave(&outside.once);
    weft__clock_moved = NULL;
    memset(&weft__root, 0, sizeof weft__root);
    weft__store(&weft__rt.foreign_inside, 0, relaxed); /* nobody else is there */
    weft__store(&weft__rt.foreign_spawned, 0, relaxed);
    weft__store(&weft__rt.foreign_done, 0, relaxed);
    clear();
    weft__store(&weft__rt.phase, WEFT_PHASE_NONE, seq_cst);
}

/* ---- running a function in it ---- */

int weft_block_on(weft_fn *fn, void *arg) {
    if (weft__self() == &weft__orphan) return WEFT_ETERMINATED;
    if (weft__self() != &weft__nobody) return fn(arg);
    weft_task *t;
    int result, err = weft_task_start(&t, fn, arg, NULL);
    if (err) return err;
    err = weft_task_join(t, &result, WEFT_FOREVER);
    if (err == WEFT_ECANCELED) { /* a scope of this thread was cancelled: the task is told, and waited for all the same */
        weft__block *b = weft__thread_block();
        weft__scope *inner = b->scope;
        weft_task_cancel(t);
        b->scope = NULL;
        while ((err = weft_task_join(t, &result, WEFT_FOREVER)) == WEFT_ECANCELED) {
        }
        b->scope = inner;
        weft__store(&b->epoch, 0, relaxed); /* it was asked about no scope at all */
    }
    return err ? err : result;
}

int weft_run(weft_fn *main, void *arg, const weft_config *cfg) {
    int err = weft_start(cfg);
    if (err) return err;
    weft__store(&weft__rt.main, main, relaxed); /* published with its task */
    int result = weft_block_on(main, arg);
    err = weft_stop(WEFT_FOREVER);
    return err && err != WEFT_ETERMINATED ? err : result; /* somebody else may have stopped it */
}

int weft_main(weft_fn *fn, int argc, char **argv) {
    weft_args args = {argc, argv};
    int result = weft_run(fn, &args, NULL);
    if (result < 0) weft__say("%s: %s", argc > 0 ? argv[0] : "main", weft_strerror(result));
    return result < 0 ? 1 : result > UINT8_MAX ? UINT8_MAX : result; /* what the shell sees has 8 bits */
}
