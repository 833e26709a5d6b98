/* SPDX-License-Identifier: MIT */
/* Fork: the child has one thread, and a copy of everything that the others were in the middle of.
 *
 * Most children only exec or exit, so nothing is done for them but setting a flag, and closing our descriptors: whoever goes on closes all that it knows,
 * opens others, and these may have the same numbers. The flag is looked at off the fast paths: where a
 * plain thread enters the runtime, asks for its block or for the phase, and where somebody waits long for a lock. The first such call
 * in the child clears away what is left: the parent's runtime is gone, every task of it has ended with WEFT_ETERMINATED, every
 * channel is closed, the thread's own open scopes are cancelled and empty (what it deferred in them is still to be called). From then on it is a process without a runtime, and may
 * start one.
 *
 * A child that a task forked stands on a stack of the runtime that is gone, on a thread that was a worker. It may exec or exit; whatever
 * enters the runtime dies with a sentence, and so does returning from the task (the worker has become weft__orphan).
 *
 *  1. Nothing that another thread may have been changing is believed: locks are released without a look, lists are emptied, and memory
 *     that only they held is lost. A channel or handle whose lock was held counts as having been in the middle of an operation.
 *  2. Memory is given back only if the parent was neither starting nor stopping, and nobody stands on it.
 *  3. The look at the flag comes before weft__foreign_enter, whose count starts anew.
 * Whoever adds static state with a lock, or threads, adds a line in clear_away.
 *
 * Rejected: taking all locks before the fork (prepare handlers), which makes every fork wait for all of the runtime, for the rare child
 * that uses it; refusing weft_start in the child, though nothing stands in its way once all this is done. */
#include <pthread.h>
#include <sched.h>

#include "block/block.h"
#include "chan/chan.h"
#include "sync/sync.h"
#include "io/depart.h"
#include "io/desc.h"
#include "net/net.h"
#include "task/panic.h"
#include "task/task.h"
#include "time/timer.h"

enum { CLEAN = 0, LEFT, CLEARING }; /* weft__forked */
_Atomic uint32_t weft__forked;
uint32_t weft__forks;
static weft__block *survivor; /* the block of the thread that called fork */
static bool orphaned;         /* which is in a task */

/* The only thread there is. */
static void in_child(void) {
    weft__forks++;
    survivor = weft__thread_block_as_it_is();
    orphaned = weft__self() != &weft__nobody;
    if (orphaned) weft__self_worker = &weft__orphan;
    weft__departs_in_child();
    weft__poll_in_child();
    weft__store(&weft__lock_is_stuck, weft__after_fork, relaxed); /* threads that are started later are ordered by that */
    weft__store(&weft__forked, LEFT, relaxed);
}

__attribute__((constructor)) static void watch(void) {
    pthread_atfork(NULL, NULL, in_child); /* without memory for it: as if there were no rule for the child */
}

/* A scope that the surviving thread has open: its tasks do not exist. */
static void forget_scope(weft__scope *s) {
    weft__store(&s->cause, WEFT_ETERMINATED, relaxed); /* nobody else is there */
    weft__store(&s->error, WEFT_ETERMINATED, relaxed);
    weft__store(&s->done, s->spawned, relaxed);
    weft__store(&s->listed, false, relaxed);
    s->blocks = NULL;
    s->count = 0;
    s->kids = NULL;
    weft__store(&s->timed, false, relaxed);
    weft__store(&s->closed, false, relaxed);
    weft__roster *r = weft__scope_roster(s);
    if (r) weft__roster_forget(r);
    weft__lock_leave(&s->lock);
}

static void forget_block(weft__block *b) {
    for (weft__scope *s = b->scope; s && s != &weft__root; s = s->parent) forget_scope(s);
    weft__store(&b->wait_lock, NULL, relaxed); /* nobody else is there */
    weft__store(&b->state, WEFT_RUNNING, relaxed);
    weft__store(&b->queued, NULL, relaxed);
    weft__store(&b->epoch, 0, relaxed);
    weft__lock_leave(&b->lock);
}

static void clear_away(void) {
    uint32_t phase = weft__load(&weft__rt.phase, relaxed); /* nobody else is there */
    bool whole = phase == WEFT_PHASE_RUNNING || phase == WEFT_PHASE_STOPPING;
    bool release = whole && !orphaned;
    weft__workers_forget();
    weft__idle_forget();
    weft__pool_forget();
    weft__bind_forget();
    weft__sites_forget();
    weft__threads_forget();
    weft__slot_take_forget();
    if (phase != WEFT_PHASE_NONE) weft__stack_pool_forget(release);
    weft__runtime_forget(release);
    weft__slab_forget(&weft__rt.fresh_slab, NULL);
    weft__chans_forget();
    weft__departs_forget();
    weft__descs_forget();
    weft__poll_forget();
    weft__net_errors_forget();
    weft__names_forget();
    weft__handles_forget();
    weft__extras_forget();
    weft__slab_forget(&weft__alarm_slab, NULL);
    weft__timers_forget();
    weft__keys_forget();
    weft__panics_forget();
    weft__stack_measure_forget();
    weft__shields_forget();
    weft__defers_forget();
    weft__rosters_forget();
    weft__sync_forget();
    weft__barrier_after_fork();
    if (survivor) forget_block(survivor);
}

void weft__after_fork(void) {
    uint32_t left = LEFT;
    if (weft__cas(&weft__forked, &left, CLEARING, acquire)) { /* pairs with the release below */
        clear_away();
        weft__store(&weft__lock_is_stuck, NULL, relaxed); /* a hint */
        weft__store(&weft__forked, CLEAN, release);       /* pairs with the acquire loads here */
    }
    while (weft__load(&weft__forked, acquire) == CLEARING) sched_yield(); /* another thread of the child was first */
}
