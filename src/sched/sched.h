/* SPDX-License-Identifier: MIT */
/* The scheduler's structures: slots, workers, tasks. docs/scheduler.md is the essay.
 *
 * A slot is the permission to run tasks and everything that goes with it: queues, timers, caches. A worker is an OS thread.
 * A worker runs tasks only while it holds a slot; which one is in its gate (handoff.h). There are as many slots as CPUs, and
 * as many workers as it takes to keep the slots busy. */
#ifndef WEFT_SRC_SCHED_H
#define WEFT_SRC_SCHED_H

#include <pthread.h>

#include "base/base.h"
#include "base/lock.h"
#include "base/slab.h"
#include "context/context.h"
#include "context/cxx.h"
#include "context/sanitize.h"
#include "context/unwind.h"
#include "os/os.h"
#include "park/park.h"
#include "stack/stack.h"
#include "time/wheel.h"

#include <weft/runtime.h>

typedef struct weft__task weft__task;
typedef struct weft__fresh weft__fresh;
typedef struct weft__extra weft__extra;
typedef struct weft__worker weft__worker;

enum {
    WEFT_RING = 256,          /* started tasks in a slot; a full ring moves the younger ones to the global queue */
    WEFT_DEQUE = 256,         /* fresh tasks in a slot */
    WEFT_GLOBAL_EVERY = 61,   /* rounds between looks at the global queues and the timers (a prime: falls into no step) */
    WEFT_FRESH_EVERY = 8,     /* looks at the global queues after which a fresh task is taken, so that none starves */
    WEFT_BUDGET = 1024,       /* operations that find their object ready before the task yields */
    WEFT_INSIDE_MAX = 256,    /* children that run inside their opener before it yields */
    WEFT_FRESH_ARGS = 64,     /* bytes of copied arguments that fit into the record */
    WEFT_SLOTS_MAX = 1024,    /* more is a mistake in the configuration */
    WEFT_THREADS_MAX = 10000, /* default of max_threads */
};

#define WEFT_SLICE_MOST (INT64_C(365) * 86400 * WEFT_SECOND) /* as good as for ever, and 64 of them are a number */

/* What a task needs. */
typedef union weft__shape {
    struct {
        union {
            struct {
                uint8_t size_class; /* of its stack */
                uint8_t extra;  /* 1: it has one; WEFT_ASK_SITE; of a child that runs inside: how often it has pinned itself */
                uint8_t args;   /* bytes of copied arguments */
                uint8_t linked; /* what its block begins with: WEFT_LINK_NONE, or NEEDLESS in the root */
            };
            uint16_t inside; /* size_class and extra: at most its opener's class, if it may run inside it */
            uint32_t needs;  /* all of them */
        };
        uint32_t epoch; /* its scope was not cancelled up to this one (the low half; it would take 2^32 cancellations while the
                           task waits to be started to be mistaken); 0 = not known */
    };
    uint64_t all; /* so that it is written at once */
} weft__shape;
#define WEFT_SHAPE_ODD UINT32_C(0xffff00) /* of needs: it has an extra, or copied arguments */
#define WEFT_ASK_SITE 0x80                /* of extra: spawned while some site's tasks bind; its own may be one (site.c) */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "weft__shape.inside compares size_class with `extra` above it"
#endif

/* A task that has not started: a record without a stack. */
struct weft__fresh {
    weft__fresh *link; /* global queue; owner of the queue */
    weft_fn *fn;
    void *arg;
    weft__scope *home;
    _Atomic uint64_t id; /* never used twice; thieves tell recycled records by it */
    void *site;          /* return address of the spawn */
    weft__extra *extra;  /* name, handle, large arguments; NULL for most */
    weft__shape shape;
    _Alignas(16) char copy[WEFT_FRESH_ARGS];
};

/* A task that has started. Lives at the top of its stack. */
struct weft__task {
    weft__block b;
    void *sp;           /* saved context; valid while it does not run */
    int saved_errno;    /* likewise */
    _Atomic bool alive; /* for people who look from outside */
    uint8_t lane;       /* its priority: WEFT_LANE_… */
    weft__task *link;   /* global queue */
    weft__task *ahead;  /* one some places behind it there, to be fetched into the cache; may be out of date, or NULL */
    weft__stack *stack; /* the one it runs on */
    weft_fn *fn;
    void *arg;
    uint64_t id;
    void *site;
    weft__extra *extra;
    const struct weft__call *timer_call; /* of a timer's function, which must not wait, by this task; NULL: none */
    uint32_t locks;          /* found free since it last stepped back (sync.h); its own. The first value does not matter */
    uint32_t pins;           /* weft_pin without weft_unpin: it runs on pinned_to only */
    _Atomic uint32_t blocks; /* weft_block_enter without weft_block_exit; its own, and read by the watch as a hint */
    weft__worker *pinned_to;
    weft__worker *bound; /* weft_bind: its own thread, which is pinned_to too; NULL: it has none */
    uint32_t binds;      /* weft_bind without weft_unbind; 0 and bound: it started so because others of its site did (site.c) */
    bool guessed;        /* its site is remembered, and it has not called weft_bind yet */
    weft_fn *meant;      /* guessed: what it is to run, and with what */
    void *meant_arg;
    char *inside_limit;  /* of the stack: with the stack pointer above it, children may run inside */
    uint32_t size_class; /* of the stack */
    uint32_t again;      /* the stack's: the class that the next task on it may have */
    weft__fresh *inner;  /* a child that runs inside this one's weft_scope_end; NULL: none */
    weft__fp fp;         /* where its floating-point control words are put when they are looked at; not kept */
    void *fake;          /* sanitizer's state while it does not run */
    bool quiet;          /* the stack's: its accesses are not checked (context/sanitize.h) */
    weft__unwind unwind;
    _Alignas(16) char copy[WEFT_FRESH_ARGS];
};

/* Whether the calling task's floating-point modes may be others than those it started with. */
WEFT_INLINE bool weft__task_fp_glance(weft__task *t) {
    bool odd;
    WEFT_CTX_FP_GLANCE(odd, t, offsetof(weft__task, fp));
    return unlikely(odd);
}

/* Something to run: a weft__task, or a weft__fresh with bit 0 set; 0 = nothing. */
typedef uintptr_t weft__work;
WEFT_INLINE weft__work weft__work_task(weft__task *t) {
    return (weft__work)t;
}
WEFT_INLINE weft__work weft__work_fresh(weft__fresh *f) {
    return (weft__work)f | 1;
}
WEFT_INLINE bool weft__is_fresh(weft__work k) {
    return k & 1;
}
WEFT_INLINE weft__fresh *weft__as_fresh(weft__work k) {
    return (weft__fresh *)(k - 1);
}
WEFT_INLINE weft__task *weft__as_task(weft__work k) {
    return (weft__task *)k;
}

/* What remains to be done for the context that was just left; run by the one that comes next. */
typedef void weft__post(weft__slot *s, void *arg);

struct weft__slot {
    /* The owner's. */
    int32_t budget;
    uint16_t lean;      /* its name among locks that lean (base/lock.h): not 0; fixed */
    uint32_t round_end; /* when `picks` gets there, there is something to attend to (weft__attend) */
    uint32_t fair_end;  /* when it gets there, it is the global queues' and the timers' turn */
    uint32_t random;
    uint32_t fair;  /* looks at the global queues */
    uint32_t boost; /* fresh tasks to run first: a storm is being worked off */
    uint32_t deque_top_seen;
    uint32_t ring_old;  /* the ring's entries before that came before the last look at the global queues */
    uint32_t told;      /* where the ring ended behind those who were told of edges last */
    uint32_t fair_head; /* of the ring, at the last look at the global queues */
    uint32_t look_head,
        look_count;      /* of the ring, after the last look at the poller: its head, and how many were in it (find.c) */
    uint32_t due;        /* timers of users that the run of a wheel has found due */
    weft__work burst_by; /* who made the last storm */
    uint64_t burst_id;
    _Atomic uint64_t last_id;      /* of the tasks that it spawned; read by the monitor */
    uint32_t late_picks;           /* age.c: picks while it was late, */
    uint32_t late_rest;            /* which of them may be the next start by age, */
    bool late_global;              /* and where the last one looked first */
    int64_t lane_since, lane_debt; /* lane.c: since when we account, and what the others are owed, ns */
    bool lane_ran_high, lane_pays;
    weft__cache fresh;
    weft__cache chans;
    weft__cache alarms;
    weft__stack_cache stacks;
    uint64_t trimmed; /* `given` when the cached ones were last looked at; under the lock in trim.c */
    /* Written by the owner, read by thieves and counters. */
    _Atomic uint32_t picks;
    _Atomic uint32_t seen;          /* picks when the sentry looked last; the sentry's */
    _Atomic uint64_t spawned, done; /* root tasks; see weft__root_alive */
    _Atomic uint64_t taken, given;  /* stacks, for tasks; for the stats */
    _Atomic int64_t now;            /* the clock when it was last looked at, and whose it is (weft__since) */
    _Atomic uint64_t steals, wakes, sleeps, overflows;
    int index;         /* fixed */
    weft__place place; /* with WEFT_PIN_WORKERS; fixed */
    weft__worker
        *inside; /* who is inside the runtime with it (H1); plain, so that a double owner is seen; checked builds only */
    /* Old tasks (age.c). */
    _Atomic uint32_t late;    /* 1 + fresh tasks that it may start by age; 0: it is not late. The marker's and the owner's */
    _Atomic uint64_t old_id;  /* up to that number what it spawned is old; the marker's */
    _Atomic uint64_t mark_id; /* the number at the last mark; the marker's */
    /* The watch's (watch.c). */
    _Atomic uint32_t watch_picks;
    _Atomic int64_t watch_since;
    _Atomic uint32_t watch_head, watch_top, watch_bottom; /* of its queues, at the last look, */
    _Atomic int64_t watch_turn;                           /* and since when what waits there has been passed over */
    _Atomic uint8_t watch_finds;                          /* WEFT_FOUND_…, at the last look */
    _Atomic int watch_tid;                                /* the owner's thread then, 0: nobody's, */
    _Atomic int64_t watch_cpu;                            /* the CPU time that it had used, */
    _Atomic int64_t watch_at;                             /* and when that was */
    /* The same of one that may compute for long (slices.c): */
    _Atomic int64_t slices_next;  /* when it is to be looked at, */
    _Atomic int64_t slices_every; /* how long after the last time that is, */
    _Atomic int64_t slices_at;    /* when it was, 0: it was not since it moved, */
    _Atomic int64_t slices_cpu;   /* its CPU time then, */
    _Atomic int64_t slices_waits; /* and how often it had waited; -1: it did */
    /* Handing the slot on (handoff.c, idle.c). */
    _Atomic(weft__worker *) owner; /* a hint: the gate decides */
    weft__slot *idle_next;         /* under the idle lock */
    bool idle;                     /* on the idle list; under the idle lock */
    uint64_t
        owed_since; /* the turn since when tasks and timers wait for it that only ordinary workers run; 0: none; under the idle lock */

    WEFT_ALIGNED _Atomic(weft__task *) next;
    WEFT_ALIGNED _Atomic uint32_t head; /* ring: advanced by owner and thieves */
    WEFT_ALIGNED _Atomic uint32_t tail; /* ring: advanced by the owner */
    _Atomic(weft__task *) ring[WEFT_RING];
    WEFT_ALIGNED _Atomic uint32_t top;    /* deque: advanced by thieves, and the owner for the last one */
    WEFT_ALIGNED _Atomic uint32_t bottom; /* deque: the owner's end */
    _Atomic(weft__fresh *) deque[WEFT_DEQUE];
    WEFT_ALIGNED weft__wheel wheel;
};

struct weft__worker {
    _Atomic uint32_t in_rt;    /* written by its own thread; read by whoever wants its slot */
    _Atomic uintptr_t gate;    /* its slot, and whether somebody wants it (handoff.h) */
    _Atomic(weft__task *) cur; /* what it runs, NULL on its own stack; its own thread, and read from outside as a hint */
    weft__post *post;
    void *post_arg;
    void *sp; /* its own stack, while it runs a task */
    void *fake;
    weft__bounds bounds;
    int *errno_at;             /* of this thread */
    weft__eh *eh;              /* likewise; NULL: no C++ */
    weft__work pending;        /* to be started from its own stack */
    bool searching;            /* counted in weft__rt.searching */
    bool in_vain;              /* a search would have found nothing, or found nothing: the next one is left out; its own */
    int64_t given_at;          /* when it was given its slot, 0: it was not; whoever gives it, before `given` */
    int64_t looked, looked_at; /* how long it has looked for work in vain lately, ns, and until when (find.c); its own */
    int64_t nap;               /* next nap, nanoseconds; doubles while nothing is found */
    weft__slot *last;          /* where it ran last; a hint */
    _Atomic int tid;           /* the kernel's number; fixed once it runs */
    bool own_thread;           /* serves one task alone (bind.c); fixed */
    bool attached;             /* somebody else's thread (worker.c); fixed */
    int pinned;                /* tasks that are pinned to it; its own */
    weft__worker *bound_next;  /* own_thread: that list; under its lock */
    bool unused;               /* own_thread: on bind.c's list; under its lock */
    bool counted;              /* own_thread: its task has called weft_bind; under bind.c's lock */
    weft__task *serves;        /* own_thread: which; NULL: none; its own; while nobody runs there, under bind.c's lock */
    _Atomic bool leaving;      /* attached: it is to be released; any thread. own_thread: there are too many; its own */
    _Atomic bool stray;        /* it lost its slot computing; whoever takes the slot, then its own */
    _Atomic uint64_t
        yields_cpu; /* it computes, and the kernel knows (H11): its thread, and what slices that had (the low half, ns); 0: no. The
                                    requester, then whoever ends it */
    uint64_t yielded_cpu; /* the last one; under the requester lock */
    int cpu;              /* that it is bound to, + 1; 0: none */
    /* idle.c */
    _Atomic uintptr_t given; /* a slot, |1: and the place of the searcher; under the idle lock; taken by the worker */
    _Atomic uint32_t wake;   /* futex */
    _Atomic uint32_t left;   /* futex: 1, somebody else's thread serves no more, and the runtime may end */
    _Atomic uint32_t polls;  /* 1: it sleeps in the poller; its own, read by whoever kicks it */
    bool listens;            /* it is about to; its own */
    weft__worker *idle_next, **idle_prev; /* idle_prev NULL = not idle; under the idle lock */
    weft__worker *all_next;               /* under the workers' lock */
    weft__task *inbox, *inbox_last;       /* pinned tasks that are ready, through `link`; under the idle lock */
    _Atomic bool has_inbox;               /* the same, as a hint */
    bool wants;                           /* idle with something in its inbox, and no slot to be had; under the idle lock */
    uint64_t wants_since;                 /* whose turn it is; under the idle lock */
    int64_t retires;                      /* it ends then, unless it is of use before; its own */
    bool was_sentry, was_listener;        /* when it was taken off the list; under the idle lock, then its own */
    int quiet;                            /* looks of the sentry since something has run; under the idle lock */
    pthread_t thread;
    int id;
};

WEFT_INLINE weft__task *weft__cur(weft__worker *w) {
    return weft__load(&w->cur, relaxed);
}
WEFT_INLINE void weft__set_cur(weft__worker *w, weft__task *t) {
    weft__store(&w->cur, t, relaxed); /* whoever looks from outside gets a hint */
}

/* A global queue. Started and fresh tasks have one each: with one for both, woken tasks waited behind storms of fresh ones. */
typedef struct weft__inject {
    WEFT_ALIGNED weft__lock lock;
    _Atomic uint32_t count;  /* written under lock, read as a hint */
    _Atomic uint64_t pushed; /* how many have come here in all; likewise */
    void *head, *tail;       /* weft__task or weft__fresh, linked through `link`; under lock */
} weft__inject;

/* Tasks of one priority. */
typedef struct weft__lane {
    weft__inject started, fresh;
} weft__lane;

/* weft__rt.phase; the transitions are in runtime.c. */
enum { WEFT_PHASE_NONE, WEFT_PHASE_STARTING, WEFT_PHASE_CLOSING, WEFT_PHASE_RUNNING, WEFT_PHASE_STOPPING };

/* The runtime. */
struct weft__rt {
    /* Read often, written seldom. */
    _Atomic uint64_t epoch; /* raised by every cancellation */
    int slots;
    uint64_t id_step; /* slots + 1 */
    _Atomic uint64_t
        generation; /* of the runtime: 2, 3, …; 1 before the first, 0 of none; plain threads may look at it while the next one begins */
    bool many; /* more than one slot: somebody may steal */
    _Atomic uint32_t
        plain;        /* weft__shape.needs of a task without wishes: its class, or WEFT_STACK_ASK; WEFT_ASK_SITE is site.c's */
    bool places;      /* slots have CPUs: WEFT_PIN_WORKERS */
    bool nodes;       /* and they are of more than one NUMA node */
    bool ring_turns;  /* one slot and no C++: weft_yield may take its short way */
    bool cxx;         /* the program has a C++ run-time library */
    bool odd_switch;  /* that, or weft__park_hook is set */
    bool panic_abort; /* the configuration, as the next three */
    void (*on_panic)(const struct weft_panic_info *info, void *arg);
    void (*on_task_error)(uint64_t id, const char *name, int result, void *arg);
    void *hook_arg;
    int default_class;       /* the configured one */
    _Atomic(weft_fn *) main; /* weft_run's; NULL: none */
    int max_threads, block_threads_max, bound_threads_max;
    int64_t search, slice, block_idle;
    bool report_stacks;     /* at the end */
    weft__slot *slot;       /* array */
    _Atomic bool no_stacks; /* the last attempt to get a stack failed: spawns are refused */
    _Atomic bool draining;
    _Atomic bool stopping;
    _Atomic uint32_t phase; /* runtime.c; futex */

    WEFT_ALIGNED _Atomic int32_t idle; /* slots nobody holds; written under the idle lock */
    _Atomic int32_t searching;         /* workers that look for work: 0 or 1 */
    _Atomic(weft__worker *) napper;    /* one that naps with its slot; a hint */
    _Atomic bool thin; /* a thread could not be started, and nobody sleeps since; a hint, written under the idle lock */
    WEFT_ALIGNED _Atomic uint32_t drained; /* futex: changes whenever a root task ends while draining */
    _Atomic uint64_t foreign_id, foreign_spawned, foreign_done;
    _Atomic uint32_t foreign_inside; /* plain threads that touch slots or workers at this moment */
    _Atomic uint64_t takeovers, handoffs, binds, binds_ahead, foreign_wakes;
    _Atomic int32_t strays; /* workers that compute without a slot */
    _Atomic int64_t hold;   /* until then no fresh task is taken from the global queue, or stolen; 0 = none */
    WEFT_ALIGNED weft__inject started, fresh;
    weft__lane lane[2];      /* high, low */
    _Atomic int64_t low_ran; /* when a low task was last taken */
    _Atomic int32_t wanting; /* workers with `wants`; written under the idle lock */
    weft__slab fresh_slab;
    weft__wheel outside; /* deadlines of plain threads' scopes; outlives the slots */
};
extern struct weft__rt weft__rt;

/* A moment and a slot in one word: the clock to about a microsecond, and the slot's number in the bits below. Whoever notes since when he waits
 * (weft__block.since) so notes where he ran last, and that costs nothing. */
WEFT_INLINE int64_t weft__since(int64_t now, const weft__slot *s) {
    return (now & -(int64_t)WEFT_SLOTS_MAX) | s->index;
}
WEFT_INLINE int64_t weft__since_when(int64_t since) {
    return since & -(int64_t)WEFT_SLOTS_MAX;
}
WEFT_INLINE weft__slot *weft__since_where(int64_t since) {
    int64_t index = since & (WEFT_SLOTS_MAX - 1);
    return index < weft__rt.slots ? &weft__rt.slot[index] : NULL;
}

/* It changes when something runs. A hint. */
WEFT_INLINE uint64_t weft__all_picks(void) {
    uint64_t sum = 0;
    for (int i = 0; i < weft__rt.slots; i++) sum += weft__load(&weft__rt.slot[i].picks, relaxed);
    return sum;
}

/* ---- who am I (self.c) ----
 *
 * The one place that reads a thread-local variable. Compilers keep the address of a thread-local across a call that moves the
 * task to another thread; a volatile asm is read anew each time. A thread that is no worker has weft__nobody, whose gate
 * holds no slot, so that telling it apart costs the fast path nothing. */
extern __thread weft__worker *weft__self_worker __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern weft__worker weft__nobody;
/* A task called fork: what its thread is in the child. Every entry finds no slot there, and dies with a sentence. */
extern weft__worker weft__orphan;

WEFT_INLINE weft__worker *weft__self(void) {
    weft__worker *w;
#if defined(__x86_64__) && (defined(__PIE__) || !defined(__PIC__)) /* the archive: part of the program itself */
    __asm__ volatile("movq %%fs:weft__self_worker@tpoff, %0" : "=r"(w));
#elif defined(__x86_64__)
    __asm__ volatile("movq weft__self_worker@gottpoff(%%rip), %0\n\tmovq %%fs:(%0), %0" : "=r"(w));
#elif defined(__aarch64__)
    uintptr_t offset;
    __asm__ volatile("adrp %1, :gottprel:weft__self_worker\n\tldr %1, [%1, :gottprel_lo12:weft__self_worker]\n\t"
                     "mrs %0, tpidr_el0\n\tldr %0, [%0, %1]"
                     : "=&r"(w), "=&r"(offset));
#else
#error "how is a thread-local variable read here?"
#endif
    return w;
}

#endif
